"""Cases of the norms."""

from kernelmark import Entry
from workloads.norm import RMSNormWorkload

ENTRIES = {
    "RMSNormFwdOp": Entry(RMSNormWorkload.from_call),
}
