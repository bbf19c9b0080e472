"""Cases of the quantisers."""

from kernelmark import Entry
from workloads.quant import Int8QuantWorkload

ENTRIES = {
    "Int8QuantOp": Entry(Int8QuantWorkload.from_call),
}
