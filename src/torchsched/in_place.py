"""Which arguments of ``main`` may be overwritten where they lie by the result that is their new value.

A call may hand in the argument's own memory as the destination where nothing reads the argument, or where each of its
elements is read before that very element is written. The second is for whoever writes the loops to say. Both stand as
attributes of the module, which outlive the way to the LLVM dialect.
"""

from __future__ import annotations

from collections.abc import Iterable

from torchsched.bindings import Module, bindings

__all__ = ["Pair", "allow", "allowed", "destinations", "record"]

Pair = tuple[int, int]
"""The position of an argument of ``main``, and that of the destination of its new value."""

_DESTINATIONS, _ALLOWED = "kernelmark.destinations", "kernelmark.in_place"


def record(module: Module, pairs: Iterable[Pair]) -> None:
    """Write down which destination is whose."""
    _set(module, _DESTINATIONS, pairs)


def destinations(module: Module) -> tuple[Pair, ...]:
    """Give what was recorded."""
    return _get(module, _DESTINATIONS)


def allow(module: Module, pairs: Iterable[Pair]) -> None:
    """Say that the two of each pair may be one memory, though the argument is read."""
    _set(module, _ALLOWED, pairs)


def allowed(module: Module) -> tuple[Pair, ...]:
    """Give the pairs that may be one memory."""
    return _get(module, _ALLOWED)


def _set(module: Module, name: str, pairs: Iterable[Pair]) -> None:
    ir = bindings("ir")
    with module.context:
        module.operation.attributes[name] = ir.DenseI64ArrayAttr.get(
            [each for pair in pairs for each in pair]
        )


def _get(module: Module, name: str) -> tuple[Pair, ...]:
    if name not in module.operation.attributes:
        return ()
    numbers = list(module.operation.attributes[name])
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))
