"""Activations that write back into their argument."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernelmark.roofline import Work
from tileops.ops.base import Op, dtype_of

__all__ = ["SiluInplaceOp"]


class SiluInplaceOp(Op):
    """SiLU in place: ``x`` becomes ``x · sigmoid(x)``, and is returned.

    On a GPU the result is computed beside the argument and then copied into it, so that a launch that fails
    half way leaves the argument as it was.

    Args:
        elements: Elements of the argument.
        dtype: Of the argument.
    """

    def __init__(self, *, elements: int, dtype: str) -> None:
        super().__init__()
        self.elements, self.dtype = elements, dtype_of(dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute, then copy; a compiler may merge the two."""
        return x.copy_(F.silu(x))

    def launch(self, x: torch.Tensor) -> torch.Tensor:
        """Compute beside ``x``, then copy from device to device."""
        from tileops.kernels.silu import silu

        if not x.is_contiguous():
            raise ValueError(f"SiluInplaceOp writes into contiguous memory; x has strides {x.stride()}")
        result = torch.empty_like(x)
        silu(x, result)
        return x.copy_(result)

    def eval_roofline(self) -> Work:
        """A negation, an exponential, an addition and a division an element; read once, written once."""
        return Work(4 * self.elements, 2 * self.elements * self.dtype.itemsize)
