"""Finds out whether a function's one loop nest may write an argument where it lies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchsched.bindings import Operation, bindings
from torchsched.in_place import Pair

__all__ = ["overwritable"]

_MATERIALIZE = "bufferization.materialize_in_destination"
_BESIDE = frozenset({"arith.constant", "tensor.empty", _MATERIALIZE, "func.return"})


def overwritable(block: Any, pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Give the pairs of an argument and its destination that may be one memory.

    The function must be one elementwise operation, which reads the argument only at the element that it writes: in
    several, one could write a destination before another has read the argument.
    """
    operations = [each.operation for each in block.operations]
    nests = [each for each in operations if each.name not in _BESIDE]
    if len(nests) != 1 or not _is_elementwise(nests[0]):
        return ()
    filled = {each.operands[1]: each.operands[0] for each in operations if each.name == _MATERIALIZE}
    arguments = list(block.arguments)
    return tuple(
        (read, written)
        for read, written in pairs
        if _reads_as_written(nests[0], arguments[read])
        and _is_result(nests[0], filled.get(arguments[written]))
    )


def _is_elementwise(operation: Operation) -> bool:
    if operation.name != "linalg.generic":
        return False
    body = [inner.operation.name for inner in operation.regions[0].blocks[0].operations]
    kinds = [str(each) for each in operation.attributes["iterator_types"]]
    return "tensor.extract" not in body and all("parallel" in kind for kind in kinds)


def _reads_as_written(operation: Operation, argument: Any) -> bool:
    uses = list(argument.uses)
    return bool(uses) and all(
        use.owner.operation == operation and _is_identity(operation, use.operand_number) for use in uses
    )


def _is_result(operation: Operation, value: Any) -> bool:
    results = list(operation.results)
    inputs = len(operation.operands) - len(results)
    return value in results and _is_identity(operation, inputs + results.index(value))


def _is_identity(operation: Operation, operand: int) -> bool:
    map_ = operation.attributes["indexing_maps"][operand].value
    return map_ == bindings("ir").AffineMap.get_identity(map_.n_dims)
