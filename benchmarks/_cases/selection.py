"""Cases of the selections."""

from kernelmark import Entry
from workloads.selection import TopKWorkload

ENTRIES = {
    "TopKOp": Entry(TopKWorkload.from_call),
}
