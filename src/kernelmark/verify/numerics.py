"""Numbers against numbers: one output compared with what was expected, in double precision, piece by piece.

Both sides have one shape, dtype and device when they come here; structure.py sees to that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelmark.records import OutputCheck
from kernelmark.verify.elements import is_packed, pieces
from kernelmark.verify.tolerance import OutputScale, Tolerance, for_dtype

__all__ = ["Comparison", "allowance", "as_tensor", "compare", "measure", "scale_of"]

_WHERE_DOUBLE_WORKS = ("cpu", "cuda")
"""Device types that compute in double precision; pieces from other devices are compared on the CPU."""

_TINY = torch.finfo(torch.float64).tiny

_SIGN = torch.iinfo(torch.int64).min


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output compared: the record, and the figures at the worst element that a report needs."""

    check: OutputCheck
    error: float = 0.0
    allowed: float = 0.0
    stray: bool = False
    """Whether the worst element is a NaN or infinity on one side only, so that there is no error to state."""
    rms_error: float | None = None
    rms_allowed: float | None = None


def compare(got: Any, expected: Any, tolerance: Tolerance, name: str = "output") -> OutputCheck:
    """Compare two tensors of one shape, dtype and device, or two numbers of one type.

    NaN equals NaN, and infinity infinity of the same sign, in the same place only. Integers and booleans are
    subtracted as integers, so that large ones do not meet in a rounding. ``max_abs_error`` is infinite where
    a NaN or infinity is out of place; ``max_rel_error`` leaves out elements whose expected value is zero.

    Args:
        got: What an implementation gave.
        expected: What the reference gave.
        tolerance: How far apart they may be.
        name: What to call this output.
    """
    return measure(got, expected, tolerance, name).check


def measure(got: Any, expected: Any, tolerance: Tolerance, name: str = "output") -> Comparison:
    """Compare as :func:`compare` does, and keep what a report of a failure needs."""
    if isinstance(expected, int) and not isinstance(expected, bool) and not _fits(got, expected):
        return _compare_large(got, expected, name)
    mine, theirs = as_tensor(got), as_tensor(expected)
    scale = scale_of(theirs, tolerance)
    worst = _Worst()
    with torch.no_grad():
        for offset, (left, right) in pieces(mine.detach(), theirs.detach()):
            if left.numel():
                worst.add(offset, _differences(left, right), tolerance, scale)
    return _conclude(mine, theirs, tolerance, scale, worst, name)


def scale_of(expected: torch.Tensor, tolerance: Tolerance) -> OutputScale:
    """Collect what ``tolerance`` may ask of an expected output, its root mean square only where it does."""
    dtype = expected.dtype
    epsilon, smallest = 0.0, 0.0
    if dtype.itemsize == 1:
        # the table knows the 8-bit floats better than torch.finfo, which gives e5m2fnuz the epsilon of e4m3
        table = for_dtype(dtype)
        epsilon, smallest = table.rtol, table.atol
    elif dtype.is_floating_point or dtype.is_complex:
        info = torch.finfo(dtype)
        epsilon, smallest = info.eps, info.smallest_normal * info.eps
    rms = _rms(expected) if tolerance.needs_rms else 0.0
    return OutputScale(str(dtype).removeprefix("torch."), epsilon, smallest, rms)


def allowance(expected: torch.Tensor, index: int, tolerance: Tolerance) -> float:
    """Give the error that ``tolerance`` allows at the flat ``index`` of ``expected``."""
    element = expected.detach()[_unravel(index, tuple(expected.shape))].reshape(1)
    magnitude = _differences(element, element).magnitude
    return float(tolerance.allowed(magnitude, scale_of(expected, tolerance)))


def as_tensor(value: Any) -> torch.Tensor:
    """Give a tensor as it is, and a number as a tensor of one element that holds it exactly."""
    if isinstance(value, torch.Tensor):
        return value
    dtypes = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
    return torch.tensor(value, dtype=dtypes[type(value)], device="cpu")


# --- one piece ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Differences:
    """A piece in double precision: per element the error, the expected magnitude, and what has no error."""

    error: torch.Tensor
    magnitude: torch.Tensor
    stray: torch.Tensor
    """True where one side is a NaN or infinity and the other is not the same; one False where none is."""


def _differences(got: torch.Tensor, expected: torch.Tensor) -> _Differences:
    if got.device.type not in _WHERE_DOUBLE_WORKS:
        got, expected = got.cpu(), expected.cpu()
    dtype = got.dtype
    if dtype.is_complex:
        return _float_differences(
            torch.view_as_real(got.to(torch.complex128)), torch.view_as_real(expected.to(torch.complex128))
        )
    if dtype.is_floating_point and not is_packed(dtype):
        return _float_differences(got.to(torch.float64)[:, None], expected.to(torch.float64)[:, None])
    return _integer_differences(got, expected)


def _float_differences(got: torch.Tensor, expected: torch.Tensor) -> _Differences:
    """Subtract; the last dimension holds the parts of an element, and each part must be in its place."""
    error = got - expected
    if bool(error.sum().isfinite()):
        # one sum shows that all is finite, as it nearly always is, for half the work of looking at each
        return _Differences(
            _size(error), _size(expected), torch.zeros(1, dtype=torch.bool, device=got.device)
        )
    same = (got == expected) | (got.isnan() & expected.isnan())
    finite = got.isfinite() & expected.isfinite()
    error = torch.where(finite, error, 0.0)
    magnitude = torch.where(expected.isfinite(), expected, 0.0)
    return _Differences(_size(error), _size(magnitude), (~(same | finite)).any(-1))


def _size(parts: torch.Tensor) -> torch.Tensor:
    return parts[:, 0].abs() if parts.shape[-1] == 1 else torch.hypot(parts[:, 0], parts[:, 1])


def _integer_differences(got: torch.Tensor, expected: torch.Tensor) -> _Differences:
    """Subtract in 64-bit integers; where that overflows the difference is so large that doubles will do."""
    shift = 0.0
    if got.dtype == torch.uint64:
        # flipping the top bit maps unsigned order onto signed order and leaves differences as they are
        got, expected, shift = got.view(torch.int64) ^ _SIGN, expected.view(torch.int64) ^ _SIGN, 2.0**63
    elif got.dtype.is_floating_point:
        got, expected = got.view(torch.uint8), expected.view(torch.uint8)
    got, expected = got.to(torch.int64), expected.to(torch.int64)
    difference = got - expected
    overflowed = ((got ^ expected) & (got ^ difference)) < 0
    rough = (got.to(torch.float64) - expected.to(torch.float64)).abs()
    error = torch.where(overflowed, rough, difference.to(torch.float64).abs())
    magnitude = (expected.to(torch.float64) + shift).abs()
    return _Differences(error, magnitude, torch.zeros(1, dtype=torch.bool, device=error.device))


# --- all pieces ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Norm:
    """A root mean square over pieces, scaled by the largest element so that squares stay in range."""

    peak: float = 0.0
    squares: float = 0.0
    """Sum of squares over ``peak`` squared."""
    count: int = 0

    def add(self, peak: float, squares: float, count: int) -> None:
        """Add a piece: its largest magnitude, its sum of squares over that squared, its elements."""
        self.count += count
        if peak > self.peak:
            self.squares = self.squares * (self.peak / peak) ** 2 + squares
            self.peak = peak
        elif self.peak > 0:
            self.squares += squares * (peak / self.peak) ** 2

    @property
    def rms(self) -> float:
        """Root of the mean square; 0 for nothing."""
        return self.peak * math.sqrt(self.squares / self.count) if self.count else 0.0


def _scaled_squares(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the largest of non-negative values, and the sum of squares over its square."""
    peak = values.max()
    unit = torch.where(peak > 0, peak, 1.0)
    return peak, (values / unit).square().sum()


def _rms(expected: torch.Tensor) -> float:
    norm = _Norm()
    with torch.no_grad():
        for _, (piece,) in pieces(expected.detach()):
            if not piece.numel():
                continue
            magnitude = _differences(piece, piece).magnitude
            peak, squares = torch.stack(_scaled_squares(magnitude)).tolist()
            norm.add(peak, squares, _finite_count(piece))
    return norm.rms


def _finite_count(piece: torch.Tensor) -> int:
    if not (piece.is_floating_point() or piece.is_complex()) or piece.element_size() == 1:
        return piece.numel()
    return int(piece.isfinite().sum())


@dataclass(slots=True)
class _Worst:
    """What is known of all pieces so far."""

    mismatched: int = 0
    max_error: float = 0.0
    max_relative: float | None = None
    strays: int = 0
    rank: tuple[float, float] = (-1.0, -1.0)
    """Error over allowance, then error, at the worst element; what has no error ranks above all."""
    index: int = 0
    error: float = 0.0
    allowed: float = 0.0
    norm: _Norm = field(default_factory=_Norm)

    def add(self, offset: int, piece: _Differences, tolerance: Tolerance, scale: OutputScale) -> None:
        """Take one piece into account; one transfer from the device."""
        error, stray = piece.error, piece.stray
        allowed = tolerance.allowed(piece.magnitude, scale)
        off = stray | error.isinf() | ~(error <= allowed)
        ratio = torch.where(off & (allowed == 0), math.inf, error / allowed.clamp(min=_TINY))
        ratio, size = torch.where(stray, math.inf, ratio), torch.where(stray, math.inf, error)
        top = ratio.max()
        at = torch.where(ratio == top, size, -1.0).argmax()
        relative = torch.where(piece.magnitude > 0, error / piece.magnitude, -1.0).max()
        peak, squares = _scaled_squares(error)
        figures = (
            off.sum(),
            stray.sum(),
            error.max(),
            relative,
            top,
            size[at],
            at,
            error[at],
            allowed[at],
            peak,
            squares,
        )
        self._merge(offset, len(error), torch.stack([f.to(torch.float64) for f in figures]).tolist())

    def _merge(self, offset: int, count: int, figures: list[float]) -> None:
        off, stray, largest, relative, top, size, at, error, allowed, peak, squares = figures
        self.mismatched += int(off)
        self.strays += int(stray)
        self.max_error = max(self.max_error, largest)
        if relative >= 0:
            self.max_relative = max(self.max_relative or 0.0, relative)
        if (top, size) > self.rank:
            self.rank, self.index, self.error, self.allowed = (top, size), offset + int(at), error, allowed
        self.norm.add(peak, squares, count)


def _conclude(
    got: torch.Tensor,
    expected: torch.Tensor,
    tolerance: Tolerance,
    scale: OutputScale,
    worst: _Worst,
    name: str,
) -> Comparison:
    shape = tuple(expected.shape)
    limit = tolerance.rms_allowed(scale)
    drift = None if limit is None else worst.norm.rms
    drifted = limit is not None and drift is not None and drift > limit
    ratio = max(worst.rank[0], 0.0)
    if limit is not None and drift:
        ratio = max(ratio, drift / limit if limit else math.inf)
    record: dict[str, Any] = {}
    if expected.numel():
        index = _unravel(worst.index, shape)
        record = {
            "max_abs_error": math.inf if worst.strays else worst.max_error,
            "max_rel_error": worst.max_relative,
            "error_over_tolerance": ratio,
            "worst_index": index,
            "expected": _text(expected[index]),
            "got": _text(got[index]),
        }
    check = OutputCheck(
        output=name,
        dtype=scale.dtype,
        shape=shape,
        tolerance=tolerance.describe(scale),
        passed=worst.mismatched == 0 and not drifted,
        total=expected.numel(),
        mismatched=worst.mismatched,
        message=f"RMS error {drift:.4g}, allowed {limit:.4g}" if drifted else "",
        **record,
    )
    stray = math.isinf(worst.rank[1]) and worst.strays > 0
    return Comparison(check, worst.error, worst.allowed, stray, drift, limit)


# --- numbers that no tensor holds, and words -------------------------------------------------------------


def _fits(*numbers: Any) -> bool:
    info = torch.iinfo(torch.int64)
    return all(isinstance(n, torch.Tensor) or info.min <= n <= info.max for n in numbers)


def _compare_large(got: int, expected: int, name: str) -> Comparison:
    """Compare Python integers of which one is beyond 64 bits: they must be equal."""
    off = got != expected
    error = math.inf if off and abs(got - expected) > 2**1023 else float(abs(got - expected))
    check = OutputCheck(
        output=name,
        dtype="int",
        shape=(),
        tolerance="exact",
        passed=not off,
        total=1,
        mismatched=int(off),
        max_abs_error=error,
        error_over_tolerance=math.inf if off else 0.0,
        worst_index=(),
        expected=str(expected),
        got=str(got),
    )
    return Comparison(check, error, 0.0)


def _unravel(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    place = []
    for size in reversed(shape):
        index, rest = divmod(index, size)
        place.append(rest)
    return tuple(reversed(place))


def _text(element: torch.Tensor) -> str:
    """Write one element with as many digits as tell its dtype's values apart."""
    dtype = element.dtype
    if is_packed(dtype):
        return f"0x{element.reshape(1).view(torch.uint8).item():02x}"
    value = element.detach().item()
    if not (dtype.is_floating_point or dtype.is_complex):
        return str(value)
    digits = math.ceil(1 + (1 - math.log2(torch.finfo(dtype).eps)) * math.log10(2))
    if isinstance(value, complex):
        return f"{value.real:.{digits}g}{value.imag:+.{digits}g}j"
    return f"{value:.{digits}g}"
