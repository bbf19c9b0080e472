"""Computes a cheap tensor again for a reduction that can share no rows with its other readers.

The gradient of a norm's weight sums ``dy * x̂`` down the columns, that of its input along the rows. What both read,
x̂ in f32, was written out between the two and read again: 4.1 ms for a bf16 RMS norm of 1024 by 4096, where the two
gradients apart took 1.6 and 1.1 ms. Knows structured operations on tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torchsched.bindings import Module, Operation, bindings

__all__ = ["repeat_for_other_rows"]

Value = Any

_CHEAP = frozenset(
    {
        "linalg.yield",
        "arith.addf",
        "arith.cmpf",
        "arith.constant",
        "arith.extf",
        "arith.extsi",
        "arith.extui",
        "arith.maximumf",
        "arith.minimumf",
        "arith.mulf",
        "arith.negf",
        "arith.select",
        "arith.sitofp",
        "arith.subf",
        "arith.truncf",
        "arith.uitofp",
    }
)
_MOST_OPERATIONS = 6
"""Of a body that is repeated, the yield among them."""


def repeat_for_other_rows(module: Module) -> bool:
    """Give each reduction along the rows of a cheap elementwise tensor a copy of what computes it.

    Only where the tensor's other readers, or what they hand on element by element, keep those rows, so that all of
    them together would have no loop in common. Fusing elementwise operations then puts the copy into the reduction.

    Returns:
        Whether anything was copied.
    """
    found = False
    ir = bindings("ir")
    with module.context, ir.Location.unknown(module.context):
        for function in module.body.operations:
            for region in function.operation.regions:
                for block in region.blocks:
                    # Backwards, so that what a copy reads is looked at after it is there.
                    for view in reversed(list(block.operations)):
                        found |= _repeat(view.operation)
    return found


@dataclass(frozen=True, slots=True)
class _Reader:
    """An operation that reads the tensor, and which of its dimensions it reduces, itself or in what follows."""

    operation: Operation
    operand: int
    itself: frozenset[int]
    whole: frozenset[int]


def _repeat(operation: Operation) -> bool:
    if not _is_cheap(operation):
        return False
    readers = list(_readers(operation.results[0]))
    rank = operation.results[0].type.rank
    reduced = frozenset().union(*(each.whole for each in readers))
    takers = [each for each in readers if 0 in each.itself]
    if len(reduced) < rank or not takers or all(0 in each.whole for each in readers):
        return False
    ir = bindings("ir")
    for taker in takers:
        with ir.InsertionPoint(taker.operation), operation.location:
            copy = operation.operation.clone()
        taker.operation.operands[taker.operand] = copy.results[0]
    return True


def _is_cheap(operation: Operation) -> bool:
    if operation.name != "linalg.generic" or len(operation.results) != 1:
        return False
    body = [inner.operation.name for inner in operation.regions[0].blocks[0].operations]
    kinds = [str(each) for each in operation.attributes["iterator_types"]]
    *inputs, destination = operation.operands
    if len(body) > _MOST_OPERATIONS or not _CHEAP.issuperset(body) or any("parallel" not in k for k in kinds):
        return False
    if not inputs or not all(each.type.has_static_shape for each in operation.operands):
        return False
    # Reading what it is made of takes no longer than writing it out and reading it again.
    return sum(map(_bytes, inputs)) <= 2 * _bytes(destination)


def _bytes(value: Value) -> int:
    size = 1
    for each in value.type.shape:
        size *= each
    text = str(value.type.element_type)
    return size * (8 if text == "index" else max(1, int("".join(filter(str.isdigit, text))) // 8))


def _readers(value: Value) -> Iterator[_Reader]:
    """Give the structured operations that read a tensor as it lies; any other reader reduces nothing."""
    for use in value.uses:
        operation = use.owner.operation
        places = _places(operation, use.operand_number)
        if places is None:
            yield _Reader(operation, use.operand_number, frozenset(), frozenset())
            continue
        kinds = [str(each) for each in operation.attributes["iterator_types"]]
        itself = frozenset(dim for dim, loop in enumerate(places) if "parallel" not in kinds[loop])
        whole = itself
        if not itself and len(operation.results) == 1:
            handed_on = _places(operation, len(operation.operands) - 1)
            if handed_on == places:
                whole = frozenset().union(*(each.whole for each in _readers(operation.results[0])))
        yield _Reader(operation, use.operand_number, itself, whole)


def _places(operation: Operation, operand: int) -> list[int] | None:
    """Give the loop that walks along each dimension of an operand; ``None`` where one loop is not all of it."""
    ir = bindings("ir")
    if operation.name != "linalg.generic":
        return None
    results = operation.attributes["indexing_maps"][operand].value.results
    loops = [each.position for each in results if isinstance(each, ir.AffineDimExpr)]
    return loops if len(loops) == len(results) == len(set(loops)) else None
