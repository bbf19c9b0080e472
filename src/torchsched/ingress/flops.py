"""Reads how many floating-point operations an entry says that its model does: arithmetic, never code."""

from __future__ import annotations

import math

from kernelmark.errors import UsageError
from kernelmark.manifest.expressions import ExpressionError, parse

__all__ = ["parse_gflops"]


def parse_gflops(text: str | float, *, name: str = "gflops") -> float:
    """Evaluate ``gflops``, such as ``(1024 * 1024 * 1024 * 2) / 1e9``: billions of operations in one call.

    Args:
        text: The arithmetic.
        name: What it is called in an error; ``bytes`` counts another thing by the same arithmetic.

    Raises:
        UsageError: it is no arithmetic over numbers, or its value is no positive number.
    """
    try:
        value = parse(text).evaluate({})
    except ExpressionError as error:
        raise UsageError(f"{name}: {error}") from error
    if isinstance(value, str) or not math.isfinite(value) or value <= 0:
        wanted = "operations of one call in billions" if name == "gflops" else f"{name} of one call"
        raise UsageError(f"{name}: {text!r} is {value!r}; give the {wanted}")
    return float(value)
