"""Puts the copies into results, at the end of ``main``, into an order in which none overwrites what another reads.

MLIR may compute one result in the buffer of another: after ``eliminate-empty-tensors`` a value that several results
begin from, such as the zeros of two sums, stands in the first result's own buffer, and bufferisation may go on in it.
What it then does not see is that the copy into the first result comes before the copy out of there: the gradient of a
layer norm's bias was added to that of its weight. This step follows bufferisation at once, while the copies are
``memref.copy`` and stand together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torchsched.bindings import Module, Operation, bindings
from torchsched.failures import Stage, failure
from torchsched.results import ENTRY, entry_of

__all__ = ["order_copies"]


def order_copies(module: Module, **_: object) -> None:
    """Order the copies into arguments of ``main``; a circle of them is broken by one buffer more.

    Nothing moves where no copy reads what an earlier one has overwritten.

    Raises:
        ModelLoweringError: something that may write memory stands between the copies.
    """
    function = entry_of(module)
    if len(function.regions[0].blocks) != 1:
        return
    block = function.regions[0].blocks[0]
    arguments = list(block.arguments)
    operations = [each.operation for each in block.operations]
    copies = [
        _Copy(operation, arguments.index(into), frozenset(_arguments_behind(operation.operands[0])))
        for operation in operations
        if operation.name == "memref.copy" and (into := _whole(operation.operands[1])) in arguments
    ]
    if not any(copies[j].reads & {copies[i].writes} for j in range(len(copies)) for i in range(j)):
        return
    _require_together(operations, copies)
    ordered = list(_ordered(copies))
    for copy in ordered:
        copy.operation.move_before(operations[-1])
    for copy in ordered:
        if copy.circular:
            _read_from_buffer(copy.operation, ordered[0].operation)


_RESHAPES = ("memref.expand_shape", "memref.collapse_shape")


def _whole(value: Any) -> Any:
    """Look through reshapes: a result of another shape than what is computed is copied into through one."""
    ir = bindings("ir")
    while not isinstance(value, ir.BlockArgument) and value.owner.name in _RESHAPES:
        value = value.owner.operands[0]
    return value


@dataclass(slots=True)
class _Copy:
    """A copy into an argument."""

    operation: Operation
    writes: int
    """Which argument."""
    reads: frozenset[int]
    """The arguments in whose memory its source may be."""
    circular: bool = False
    """Whether it must read before others write, and write after they have read."""


def _ordered(copies: list[_Copy]) -> Iterator[_Copy]:
    """Give each copy when no other is left that reads what it writes."""
    left = list(copies)
    while left:
        free = next((copy for copy in left if not _readers(copy, left)), None)
        if free is None:
            # What each one left writes is read by another: let one of the readers read from a buffer that is filled
            # before all of them. Each turn takes one reader out of the way, so this ends.
            reader = next(reader for copy in left for reader in _readers(copy, left))
            reader.circular = True
            continue
        left.remove(free)
        yield free


def _readers(copy: _Copy, left: list[_Copy]) -> list[_Copy]:
    return [
        other for other in left if other is not copy and copy.writes in other.reads and not other.circular
    ]


def _read_from_buffer(copy: Operation, first: Operation) -> None:
    """Let a copy read from a buffer of its own, which is filled before ``first``."""
    ir = bindings("ir")
    source = copy.operands[0]
    kind = ir.MemRefType(source.type)
    with copy.context, copy.location, ir.InsertionPoint(first):
        plain = ir.MemRefType.get(list(kind.shape), kind.element_type)
        buffer = ir.Operation.create(
            "memref.alloc",
            results=[plain],
            attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])},
        ).result
        ir.Operation.create("memref.copy", operands=[source, buffer])
    copy.operands[0] = buffer


def _arguments_behind(value: Any) -> set[int]:
    """Find the arguments of ``main`` whose memory ``value`` may be: through views, choices and loops."""
    ir = bindings("ir")
    found: set[int] = set()
    seen, pending = [], [value]
    while pending:
        value = pending.pop()
        if value in seen or not str(value.type).startswith("memref<"):
            continue
        seen.append(value)
        if not isinstance(value, ir.BlockArgument):
            pending += _into(value.owner, value.result_number)
        elif value.owner.owner.operation.name == "func.func":
            found.add(value.arg_number)
        else:
            # a loop's own name for what it carries; its first argument is the counter
            pending += _into(value.owner.owner.operation, value.arg_number - 1)
    return found


def _into(operation: Any, place: int) -> list[Any]:
    """Give what may come out of an operation as its result number ``place``.

    Loops and choices keep their values apart; of anything else, each operand may be any result. A loop taken for
    mixing them would have every result of a fused loop nest copied twice.
    """
    ends = [
        block.operations[len(block.operations) - 1] for region in operation.regions for block in region.blocks
    ]
    if operation.name == "scf.for":
        return [operation.operands[3 + place], ends[0].operands[place]]
    if operation.name == "scf.if":
        return [end.operands[place] for end in ends]
    return [*operation.operands, *(operand for end in ends for operand in end.operands)]


_HARMLESS = ("memref.", "arith.", "affine.apply")
_WRITING = ("memref.store", "memref.atomic_rmw", "memref.generic_atomic_rmw", "memref.realloc")


def _require_together(operations: list[Operation], copies: list[_Copy]) -> None:
    own = [copy.operation for copy in copies]
    for operation in operations[operations.index(own[0]) : -1]:
        if operation in own:
            continue
        into_argument = operation.name == "memref.copy"
        if into_argument or operation.name in _WRITING or not operation.name.startswith(_HARMLESS):
            raise failure(
                Stage.LOWER,
                f"{operation.name} stands between the copies into the results of {ENTRY}, which must change their"
                " order; order_copies comes right after one-shot-bufferize",
                op=operation.name,
            )
