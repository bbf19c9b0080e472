"""Quantisers: inputs, reference and check."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import torch

from kernelmark.manifest import WorkloadCall
from workloads.numerics import Custom

__all__ = ["Int8QuantWorkload"]

# Two float32 roundings on the way to a value of up to 127 steps: 127 · 2 · 2⁻²⁴ = 1.5e-5 of a step.
_HALF_STEP = 0.5 + 1e-4
# The largest magnitude is exact; dividing by 127, or multiplying by a rounded 1/127, errs by an ulp or two.
_SCALE_RTOL = 1e-6


@dataclass(slots=True)
class Int8QuantWorkload:
    """Activations with outlying channels, which is what makes a scale for each row worth its cost."""

    rows: int
    columns: int
    dtype: torch.dtype
    floor: float
    _x: torch.Tensor | None = field(default=None, repr=False)
    """The tensor that ``gen_inputs`` made, held for the check: the bound is on the distance from it."""

    @classmethod
    def from_call(cls, call: WorkloadCall) -> Self:
        """Build from a manifest call of ``Int8QuantOp``."""
        return cls(call.dims["M"], call.dims["H"], getattr(torch, call.dtypes["T"]), call.params["floor"])

    def gen_inputs(self) -> tuple[torch.Tensor]:
        """Make ``(x,)``: one channel in 128 is ten times as large as the others."""
        x = torch.randn(self.rows, self.columns)
        x[:, ::128] *= 10
        self._x = x.to(self.dtype)
        return (self._x,)

    def reference(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scale each row's largest magnitude to 127 and round to the nearest, ties to even."""
        wide = x.float()
        scales = wide.abs().amax(-1, keepdim=True).clamp(min=self.floor) / 127
        return (wide / scales).round().clamp(-127, 127).to(torch.int8), scales

    def verification(self) -> Custom:
        """Bound what quantising may lose; where a tie goes, or how a reciprocal is rounded, is left open."""
        return Custom(
            self._within_half_a_step,
            f"scales to {_SCALE_RTOL:g}; values · scales within half a step of the input",
        )

    def _within_half_a_step(self, got: Any, expected: Any) -> None:
        if self._x is None:
            raise RuntimeError(
                "the check needs the input that gen_inputs() made; call it on this workload first"
            )
        (values, scales), (_, expected_scales) = got, expected
        torch.testing.assert_close(scales, expected_scales, rtol=_SCALE_RTOL, atol=0)
        steps = (values.float() * scales - self._x.float()).abs() / scales
        worst = steps.max().item()
        # Written so that NaN fails.
        if not worst <= _HALF_STEP:
            row, column = divmod(int(steps.argmax()), self.columns)
            raise AssertionError(
                f"values[{row}, {column}] · scale is {worst:.4g} steps from the input, more than {_HALF_STEP}"
            )
