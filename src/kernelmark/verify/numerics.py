"""Numbers against numbers: one output compared with what was expected, in double precision, piece by piece.

Both sides have one shape, dtype and device when they come here; structure.py sees to that.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from kernelmark.records import OutputCheck
from kernelmark.verify.memory import is_packed, pieces, place_of
from kernelmark.verify.tolerance import OutputScale, Tolerance, for_dtype

__all__ = ["Comparison", "allowance", "as_tensor", "compare", "measure", "scale_of", "wide"]

_TINY = torch.finfo(torch.float64).tiny

_SIGN = torch.iinfo(torch.int64).min


class Comparison(NamedTuple):
    """One output compared: the record, and the figures at the worst element that a report needs."""

    check: OutputCheck
    error: float
    allowed: float
    stray: bool = False
    """Whether the worst element is a NaN or infinity on one side only, so that there is no error to state."""


class _Differences(NamedTuple):
    """A piece in double precision: per element the error, the expected magnitude, and what has no error."""

    error: torch.Tensor
    magnitude: torch.Tensor
    stray: torch.Tensor
    """True where one side is a NaN or infinity and the other is not the same; one False where none is."""


class _Figures(NamedTuple):
    """What one piece tells."""

    mismatched: float
    strays: float
    max_error: float
    max_relative: float
    """-1 where no element has a relative error."""
    ratio: float
    """Error over allowance at the worst element; what has no error is infinite, here and in ``size``."""
    size: float
    place: float
    error: float
    allowed: float
    peak: float
    squares: float


def compare(got: Any, expected: Any, tolerance: Tolerance, name: str = "output") -> OutputCheck:
    """Compare two tensors of one shape, dtype and device, or two numbers of one type; ``name`` is the output's.

    NaN equals NaN, and infinity infinity of the same sign, in the same place only. Integers and booleans are
    subtracted as integers, so that large ones do not meet in a rounding. ``max_abs_error`` is infinite where
    a NaN or infinity is out of place; ``max_rel_error`` leaves out elements whose expected value is zero.
    """
    return measure(got, expected, tolerance, name).check


def measure(got: Any, expected: Any, tolerance: Tolerance, name: str = "output") -> Comparison:
    """Compare as :func:`compare` does, and keep what a report of a failure needs."""
    if isinstance(expected, int) and not isinstance(expected, bool) and not _fits(got, expected):
        return _compare_large(got, expected, name)
    mine, theirs = as_tensor(got), as_tensor(expected)
    scale, shape, count = scale_of(theirs, tolerance), tuple(theirs.shape), theirs.numel()
    with torch.no_grad():
        found = [
            (offset, _figures(_differences(left, right), tolerance, scale))
            for offset, (left, right) in pieces(mine.detach(), theirs.detach())
            if left.numel()
        ]
    mismatched = int(sum(each.mismatched for _, each in found))
    strays = any(each.strays for _, each in found)
    limit = tolerance.rms_allowed(scale)
    drift = _rms([(each.peak, each.squares) for _, each in found], count)
    drifted = limit is not None and drift > limit
    record: dict[str, Any] = {}
    offset, worst = max(found, key=lambda each: (each[1].ratio, each[1].size), default=(0, None))
    if worst is not None:
        index = place_of(offset + int(worst.place), shape)
        ratio = worst.ratio
        if limit is not None and drift:
            ratio = max(ratio, drift / limit if limit else math.inf)
        relative = max(each.max_relative for _, each in found)
        record = {
            "max_abs_error": math.inf if strays else max(each.max_error for _, each in found),
            "max_rel_error": relative if relative >= 0 else None,
            "error_over_tolerance": ratio,
            "worst_index": index,
            "expected": _text(theirs[index]),
            "got": _text(mine[index]),
        }
    check = OutputCheck(
        output=name,
        dtype=scale.dtype,
        shape=shape,
        tolerance=tolerance.describe(scale),
        passed=mismatched == 0 and not drifted,
        total=count,
        mismatched=mismatched,
        message=f"RMS error {drift:.4g}, allowed {limit:.4g}" if drifted else "",
        **record,
    )
    if worst is None:
        return Comparison(check, 0.0, 0.0)
    return Comparison(check, worst.error, worst.allowed, strays and math.isinf(worst.size))


def scale_of(expected: torch.Tensor, tolerance: Tolerance) -> OutputScale:
    """Collect what ``tolerance`` may ask of an expected output, its root mean square only where it does."""
    dtype = expected.dtype
    epsilon, smallest, rms = 0.0, 0.0, 0.0
    if dtype.itemsize == 1:
        # the table knows the 8-bit floats better than torch.finfo, which gives e5m2fnuz the epsilon of e4m3
        table = for_dtype(dtype)
        epsilon, smallest = table.rtol, table.atol
    elif dtype.is_floating_point or dtype.is_complex:
        info = torch.finfo(dtype)
        epsilon, smallest = info.eps, info.smallest_normal * info.eps
    if tolerance.needs_rms:
        parts, count = [], 0
        with torch.no_grad():
            for _, (piece,) in pieces(expected.detach()):
                if piece.numel():
                    magnitude = _differences(piece, piece).magnitude
                    peak, squares = torch.stack(_scaled_squares(magnitude)).tolist()
                    parts.append((peak, squares))
                    inexact = (dtype.is_floating_point or dtype.is_complex) and dtype.itemsize > 1
                    count += int(piece.isfinite().sum()) if inexact else piece.numel()
        rms = _rms(parts, count)
    return OutputScale(str(dtype).removeprefix("torch."), epsilon, smallest, rms)


def allowance(expected: torch.Tensor, index: int, tolerance: Tolerance) -> float:
    """Give the error that ``tolerance`` allows at the flat ``index`` of ``expected``."""
    element = expected.detach()[place_of(index, expected.shape)].reshape(1)
    magnitude = _differences(element, element).magnitude
    return float(tolerance.allowed(magnitude, scale_of(expected, tolerance)))


def as_tensor(value: Any) -> torch.Tensor:
    """Give a tensor as it is, and a number as a tensor of one element that holds it exactly."""
    if isinstance(value, torch.Tensor):
        return value
    dtypes = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
    return torch.tensor(value, dtype=dtypes[type(value)], device="cpu")


def wide(piece: torch.Tensor) -> torch.Tensor:
    """Give a piece in double precision, on the CPU where its device has none."""
    return _near(piece).to(torch.complex128 if piece.is_complex() else torch.float64)


def _near(piece: torch.Tensor) -> torch.Tensor:
    return piece if piece.device.type in ("cpu", "cuda") else piece.cpu()


# --- one piece ---------------------------------------------------------------------------------------


def _differences(got: torch.Tensor, expected: torch.Tensor) -> _Differences:
    if not (got.is_complex() or got.is_floating_point()) or is_packed(got.dtype):
        return _integer_differences(got, expected)
    mine, theirs = wide(got), wide(expected)
    # the last dimension holds the parts of an element, and each part must be in its place
    if mine.is_complex():
        mine, theirs = torch.view_as_real(mine), torch.view_as_real(theirs)
    else:
        mine, theirs = mine[:, None], theirs[:, None]
    error = mine - theirs
    if bool(error.sum().isfinite()):
        # one sum shows that all is finite, as it nearly always is, for half the work of looking at each
        return _Differences(_size(error), _size(theirs), torch.zeros(1, dtype=torch.bool, device=mine.device))
    same = (mine == theirs) | (mine.isnan() & theirs.isnan())
    finite = mine.isfinite() & theirs.isfinite()
    magnitude = torch.where(theirs.isfinite(), theirs, 0.0)
    return _Differences(_size(torch.where(finite, error, 0.0)), _size(magnitude), (~(same | finite)).any(-1))


def _size(parts: torch.Tensor) -> torch.Tensor:
    return parts[:, 0].abs() if parts.shape[-1] == 1 else torch.hypot(parts[:, 0], parts[:, 1])


def _integer_differences(got: torch.Tensor, expected: torch.Tensor) -> _Differences:
    """Subtract in 64-bit integers; where that overflows the difference is so large that doubles will do."""
    got, expected, shift = _near(got), _near(expected), 0.0
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


def _figures(piece: _Differences, tolerance: Tolerance, scale: OutputScale) -> _Figures:
    """Look at one piece; one transfer from the device."""
    error, magnitude, stray = piece
    allowed = tolerance.allowed(magnitude, scale)
    off = stray | error.isinf() | ~(error <= allowed)
    ratio = torch.where(off & (allowed == 0), math.inf, error / allowed.clamp(min=_TINY))
    ratio, size = torch.where(stray | ratio.isnan(), math.inf, ratio), torch.where(stray, math.inf, error)
    top = ratio.max()
    at = torch.where(ratio == top, size, -1.0).argmax()
    relative = torch.where(magnitude > 0, error / magnitude, -1.0).max()
    figures = (
        *(off.sum(), stray.sum(), error.max(), relative, top, size[at], at, error[at], allowed[at]),
        *_scaled_squares(error),
    )
    return _Figures(*torch.stack([each.to(torch.float64) for each in figures]).tolist())


def _scaled_squares(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the largest of non-negative values, and the sum of squares over its square, which stay in range."""
    peak = values.max()
    unit = torch.where(peak > 0, peak, 1.0)
    return peak, (values / unit).square().sum()


def _rms(parts: list[tuple[float, float]], count: int) -> float:
    """Give the root mean square of ``count`` values from what :func:`_scaled_squares` gave of their pieces."""
    largest = max((peak for peak, _ in parts), default=0.0)
    if not largest or not count:
        return 0.0
    return largest * math.sqrt(sum(squares * (peak / largest) ** 2 for peak, squares in parts) / count)


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
