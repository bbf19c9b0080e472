"""Splits operations over threads while the module is on tensors: the outermost parallel loop, one piece a thread.

For operations that nothing else has tiled. A reduction is never split, and neither is what takes less time than
threads take to start.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torchsched.bindings import Module, Operation, bindings
from torchsched.interpreter import apply_sequence, sequence
from torchsched.results import entry_of
from torchsched.targets import Target

__all__ = ["LEAST_POINTS", "split_over_threads"]

LEAST_POINTS = 1 << 16
"""Iterations below which an operation stays on one thread: at a nanosecond each they take 65 µs, and opening a
parallel region takes from 2 µs on a quiet machine to 140 µs on one whose cores are busy."""

_MARK = "kernelmark_split"


def split_over_threads(module: Module, *, target: Target, least_points: int = LEAST_POINTS) -> None:
    """Turn each large ``linalg.generic`` of ``main`` into ``scf.forall`` over its outermost parallel loop.

    An operation inside another loop stays as it is. Nothing is done for a target of one thread.

    Args:
        module: On tensors; named operations are left alone, so generalise them before.
        target: Says how many threads.
        least_points: Iterations that an operation must have.
    """
    if not target.parallel:
        return
    found = dict(_splittable(module, target.threads, least_points))
    if not found:
        return
    ir = bindings("ir")
    with module.context:
        number = ir.IntegerType.get_signless(64)
        for operation, axis in found.items():
            operation.attributes[_MARK] = ir.IntegerAttr.get(number, axis)
    body = "\n".join(_tile(axis, target.threads) for axis in sorted(set(found.values())))
    apply_sequence(module, sequence(body))


def _tile(axis: int, threads: int) -> str:
    counts = ", ".join([*["0"] * axis, str(threads)])
    handle = "!transform.any_op"
    return (
        f"%op{axis} = transform.structured.match attributes {{{_MARK} = {axis} : i64}} in %root"
        f" : ({handle}) -> {handle}\n"
        f"%tiled{axis}, %forall{axis} = transform.structured.tile_using_forall %op{axis}"
        f" num_threads [{counts}] : ({handle}) -> ({handle}, {handle})"
    )


def _splittable(module: Module, threads: int, least_points: int) -> Iterator[tuple[Operation, int]]:
    """Give each operation that is split, and the loop that is."""
    for operation in entry_of(module).regions[0].blocks[0].operations:
        if operation.operation.name != "linalg.generic" or not len(operation.operation.results):
            continue
        sizes = _sizes(operation)
        if sizes is None or math.prod(sizes.values()) < least_points:
            continue
        axis = _axis(operation, sizes, threads)
        if axis is not None:
            yield operation.operation, axis


def _axis(operation: Any, sizes: dict[int, int], threads: int) -> int | None:
    """Choose the outermost parallel loop that has a turn for each thread."""
    kinds = [str(kind) for kind in operation.attributes["iterator_types"]]
    outputs = _maps(operation)[-len(operation.operation.results) :]
    for axis, kind in enumerate(kinds):
        everywhere = all(axis in _positions(each).values() for each in outputs)
        if "parallel" in kind and everywhere and sizes.get(axis, 0) >= threads:
            return axis
    return None


def _sizes(operation: Any) -> dict[int, int] | None:
    """Give the number of turns of each loop; None where a size is not known."""
    ir = bindings("ir")
    sizes: dict[int, int] = {}
    for operand, map_ in zip(operation.operation.operands, _maps(operation), strict=True):
        if not isinstance(operand.type, ir.RankedTensorType):
            continue
        if not operand.type.has_static_shape:
            return None
        for place, axis in _positions(map_).items():
            sizes[axis] = operand.type.shape[place]
    return sizes


def _maps(operation: Any) -> list[Any]:
    return [each.value for each in operation.attributes["indexing_maps"]]


def _positions(map_: Any) -> dict[int, int]:
    """For each place of a map that is a loop's index alone: the loop."""
    ir = bindings("ir")
    return {
        place: expression.position
        for place, expression in enumerate(map_.results)
        if isinstance(expression, ir.AffineDimExpr)
    }
