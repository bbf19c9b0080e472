"""Operations and bytes of attention, which depend on the mask and so do not fit a formula in the manifest."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmark.manifest import WorkloadCall
from kernelmark.manifest.expressions import DTYPE_BYTES
from kernelmark.roofline import Work

__all__ = ["AttentionShape", "forward"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """The sizes of one attention; a causal mask ends where both sequences end."""

    batch: int
    q_length: int
    kv_length: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: str
    causal: bool

    def forward_work(self) -> Work:
        """Count the two products over the pairs of query and key that the mask leaves, without the softmax.

        Under a causal mask, query ``i`` of ``S`` sees ``L - S + i + 1`` of ``L`` keys. Every input is read
        once and every output written once.
        """
        pairs = self.q_length * self.kv_length
        if self.causal:
            pairs -= self.q_length * (self.q_length - 1) // 2
        rows = self.q_length * self.heads + self.kv_length * self.kv_heads
        elements = 2 * self.batch * rows * self.head_dim
        return Work(
            flops=4 * self.batch * self.heads * self.head_dim * pairs,
            bytes=elements * DTYPE_BYTES[self.dtype] + 4 * self.batch * self.heads * self.q_length,
            compute=self.dtype,
        )


def forward(call: WorkloadCall) -> Work:
    """Count a manifest call of ``AttentionFwdOp``, whose constructor takes all that counts."""
    return AttentionShape(**call.arguments).forward_work()
