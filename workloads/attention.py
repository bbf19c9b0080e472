"""Attention: inputs, reference and check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from kernelmark.manifest import WorkloadCall
from workloads.numerics import Normalised, Partial, for_dtype

__all__ = ["AttentionFwdWorkload"]


@dataclass(frozen=True, slots=True)
class AttentionFwdWorkload:
    """Standard normal queries, keys and values; a causal mask ends where both sequences end."""

    q_shape: tuple[int, ...]
    kv_shape: tuple[int, ...]
    dtype: torch.dtype
    causal: bool

    @classmethod
    def from_call(cls, call: WorkloadCall) -> Self:
        """Build from a manifest call of ``AttentionFwdOp``."""
        return cls(
            call.tensors["q"].shape,
            call.tensors["k"].shape,
            getattr(torch, call.dtypes["T"]),
            call.params["causal"],
        )

    def gen_inputs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Make ``(q, k, v)``."""
        q = torch.randn(self.q_shape, dtype=self.dtype)
        return q, torch.randn(self.kv_shape, dtype=self.dtype), torch.randn(self.kv_shape, dtype=self.dtype)

    def mask(self, device: torch.device) -> torch.Tensor | None:
        """Give the boolean mask of keys that each query sees; None where it sees all."""
        if not self.causal:
            return None
        q_length, kv_length = self.q_shape[1], self.kv_shape[1]
        return torch.ones(q_length, kv_length, dtype=torch.bool, device=device).tril(kv_length - q_length)

    def reference(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute in float32 and keep every score; the log-sum-exp is a natural logarithm."""
        group = q.shape[2] // k.shape[2]
        queries = q.float().transpose(1, 2)
        keys = k.float().transpose(1, 2).repeat_interleave(group, 1)
        values = v.float().transpose(1, 2).repeat_interleave(group, 1)
        scores = queries @ keys.transpose(2, 3) * q.shape[3] ** -0.5
        mask = self.mask(q.device)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        lse = scores.logsumexp(-1)
        out = scores.softmax(-1) @ values
        return out.transpose(1, 2).to(self.dtype), lse

    def verification(self) -> Partial:
        """Compare the output only: libraries give the log-sum-exp in base 2 or base e, as their callers like.

        The size of an output falls with the number of keys it averages, so its error is held against the
        size of the whole output: an absolute bound that is fit for the first row would pass any last row.
        """
        return Partial(1, Normalised(for_dtype(self.dtype).rtol))
