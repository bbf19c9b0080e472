"""Attention."""

from __future__ import annotations

import math

import torch

from kernelmark.roofline import Work
from tileops.ops.base import Op
from tileops.perf.attention import AttentionShape

__all__ = ["AttentionFwdOp"]

# Queries that the CPU path takes at once. A causal mask hides whole blocks of keys from the earlier ones.
_CPU_QUERIES = 128


class AttentionFwdOp(Op):
    """Softmax attention of a prefill: ``op(q, k, v)`` gives the output and the log-sum-exp in base 2.

    Tensors are ``(batch, length, heads, head_dim)``. Scores are scaled by ``head_dim ** -0.5``. The
    log-sum-exp is ``(batch, heads, q_length)`` in float32.

    Args:
        batch: Sequences.
        q_length: Queries a sequence.
        kv_length: Keys a sequence.
        heads: Query heads.
        kv_heads: Key and value heads, each shared by ``heads / kv_heads`` query heads.
        head_dim: Length of a query, key or value.
        dtype: Of all three.
        causal: Hide from each query the keys after it; the last query sees the last key.
    """

    def __init__(
        self,
        *,
        batch: int,
        q_length: int,
        kv_length: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        dtype: str,
        causal: bool = True,
    ) -> None:
        super().__init__()
        if heads % kv_heads:
            raise ValueError(
                f"AttentionFwdOp shares {kv_heads} key heads among {heads} query heads; not evenly"
            )
        if causal and q_length > kv_length:
            raise ValueError(
                f"AttentionFwdOp: {q_length} causal queries over {kv_length} keys leave some without any key"
            )
        self.shape = AttentionShape(
            batch=batch,
            q_length=q_length,
            kv_length=kv_length,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            dtype=dtype,
            causal=causal,
        )

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute by blocks of queries, each over the keys that any of them sees."""
        shape = self.shape
        keys = k.permute(0, 2, 3, 1).flatten(0, 1)
        values = v.transpose(1, 2).flatten(0, 1)
        outs, lses = [], []
        for first in range(0, shape.q_length, _CPU_QUERIES):
            block = q[:, first : first + _CPU_QUERIES]
            hidden = shape.q_length - first - block.shape[1] if shape.causal else 0
            seen = shape.kv_length - hidden
            out, lse = self._block(block, keys[..., :seen], values[:, :seen])
            outs.append(out)
            lses.append(lse)
        return torch.cat(outs, 1), torch.cat(lses, 2)

    def _block(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attend with queries of which the last sees all the keys given; the heads of a group go together."""
        batch, length, heads, dim = q.shape
        group, seen = heads // self.shape.kv_heads, keys.shape[-1]
        rows = q.transpose(1, 2).reshape(batch * self.shape.kv_heads, group * length, dim)
        scores = torch.bmm(rows, keys).float() * (dim**-0.5)
        if self.shape.causal:
            last = torch.arange(length, device=q.device).repeat(group) + (seen - length)
            scores = torch.where(torch.arange(seen, device=q.device) <= last[:, None], scores, -math.inf)
        peak = scores.amax(-1, keepdim=True)
        weights = torch.exp(scores - peak)
        norm = weights.sum(-1, keepdim=True)
        out = torch.bmm((weights / norm).to(q.dtype), values).view(batch, heads, length, dim)
        lse = (peak + norm.log()).view(batch, heads, length) * math.log2(math.e)
        return out.transpose(1, 2), lse

    def launch(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute with one kernel, which never writes the scores."""
        from tileops.kernels.attention_fwd import attention_fwd

        return attention_fwd(
            q.contiguous(),
            k.contiguous(),
            v.contiguous(),
            scale=self.shape.head_dim**-0.5,
            causal=self.shape.causal,
        )

    def eval_roofline(self) -> Work:
        """The two products over the pairs that the mask leaves; every tensor crosses the bus once."""
        return self.shape.forward_work()
