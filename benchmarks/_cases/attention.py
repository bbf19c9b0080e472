"""Cases of attention."""

from kernelmark import Entry
from workloads.attention import AttentionFwdWorkload

ENTRIES = {
    "AttentionFwdOp": Entry(AttentionFwdWorkload.from_call),
}
