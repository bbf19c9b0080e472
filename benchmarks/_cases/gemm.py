"""Cases of the matrix products."""

from kernelmark import Entry
from workloads.gemm import BmmWorkload, GemmWorkload

ENTRIES = {
    "BmmFwdOp": Entry(BmmWorkload.from_call),
    "GemmFwdOp": Entry(GemmWorkload.from_call),
}
