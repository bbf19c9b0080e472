"""The five calls that every instrument reads: tiny, small, bound by memory, bound by arithmetic, and both.

What is in a call is the same for every instrument and in every process: the same operation, sizes and values,
into outputs that are there already, so that no instrument has an allocation to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelmark.timing import Call
from kernelmark.timing.timer import SYNCHRONOUS_KINDS
from kernelmark.units import format_bytes

__all__ = ["AuditCall", "build_calls", "calls_for"]

_SEED = 20261
"""The power that a product draws, and with it the clock, depends on its values."""


@dataclass(frozen=True, slots=True)
class AuditCall:
    """One call: its name, and whether it is long enough for an instrument's own share to vanish in it."""

    name: str
    long: bool


@dataclass(frozen=True, slots=True)
class _Sizes:
    tiny: int
    small: int
    large: int
    square: int
    dtype: str


_ACCELERATOR = _Sizes(tiny=256, small=1 << 20, large=1 << 26, square=4096, dtype="bfloat16")
_CPU = _Sizes(tiny=256, small=1 << 20, large=1 << 23, square=512, dtype="float32")
"""A few milliseconds at most on one thread."""


def calls_for(kind: str) -> tuple[AuditCall, ...]:
    """Name the calls for a device of ``kind``, in the order in which they are read."""
    sizes = _sizes(kind)
    return (
        AuditCall(f"add of {sizes.tiny} floats", long=False),
        AuditCall(f"add of {format_bytes(4 * sizes.small)}", long=False),
        AuditCall(f"add of {format_bytes(4 * sizes.large)}", long=True),
        AuditCall(f"matmul {sizes.square}³ {sizes.dtype}", long=True),
        AuditCall(f"softmax {sizes.square}² {sizes.dtype}", long=True),
    )


def build_calls(kind: str, torch_name: str) -> Mapping[str, Call]:
    """Make the calls on a device, each by its name."""
    import torch

    sizes = _sizes(kind)
    dtype = getattr(torch, sizes.dtype)
    generator = torch.Generator(device=torch_name).manual_seed(_SEED)

    def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, dtype=dtype, device=torch_name, generator=generator)

    def add(count: int) -> Call:
        given = drawn(count)
        out = torch.empty_like(given)
        return Call(lambda: torch.add(given, given, out=out))

    square = drawn(sizes.square, sizes.square, dtype=dtype)
    product, shares = torch.empty_like(square), torch.empty_like(square)
    made = (
        add(sizes.tiny),
        add(sizes.small),
        add(sizes.large),
        Call(lambda: torch.mm(square, square, out=product)),
        Call(lambda: torch.softmax(square, -1, out=shares)),
    )
    return dict(zip((call.name for call in calls_for(kind)), made, strict=True))


def _sizes(kind: str) -> _Sizes:
    return _CPU if kind in SYNCHRONOUS_KINDS else _ACCELERATOR
