"""Cases of the backward passes of norms."""

from __future__ import annotations

import torch

from kernelmark import Entry
from workloads.norm_bwd import RMSNormBwdWorkload


def after_forward(workload: RMSNormBwdWorkload) -> tuple[torch.Tensor, ...]:
    """Run the forward pass, and give the backward pass what it saved."""
    dy, x, weight = workload.gen_inputs()
    _, rstd = workload.forward(x, weight)
    return dy, x, weight, rstd


ENTRIES = {
    "RMSNormBwdOp": Entry(RMSNormBwdWorkload.from_call, inputs=after_forward),
}
