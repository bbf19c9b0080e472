"""Cases of softmax."""

from kernelmark import Entry
from workloads.softmax import SoftmaxWorkload

ENTRIES = {
    "SoftmaxFwdOp": Entry(SoftmaxWorkload.from_call),
}
