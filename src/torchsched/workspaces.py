"""Moves the buffers that ``main`` allocates on every call into arguments of its own, so that a call allocates nothing.

Works on a module of memrefs, before or after its deallocations are inserted. Buffers that are never in use at the
same time share memory. What is allocated inside a loop, of a size not known, or handed out stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torchsched.bindings import Module, Operation, bindings
from torchsched.elements import Element
from torchsched.packing import ALIGNMENT
from torchsched.results import entry_of
from torchsched.signature import TensorType

__all__ = ["hoist", "hoist_workspaces", "workspaces_of"]

_RECORD = "kernelmark.workspaces"
"""The module's attribute that says how many bytes each workspace has; it outlives the way to the LLVM dialect."""


def hoist(module: Module, **_: object) -> None:
    """Do what :func:`hoist_workspaces` does, as a step of a schedule."""
    hoist_workspaces(module)


def hoist_workspaces(module: Module) -> tuple[TensorType, ...]:
    """Turn allocations at the top level of ``main`` into arguments after all others, and give their types.

    An argument is a buffer of bytes that one or more of the former allocations view. Nothing is done where ``main``
    branches, or has had this done to it.
    """
    function = entry_of(module)
    if _RECORD in module.operation.attributes or len(function.regions[0].blocks) != 1:
        return workspaces_of(module)
    block = function.regions[0].blocks[0]
    order = {operation.operation: index for index, operation in enumerate(block.operations)}
    buffers = [found for operation in block.operations if (found := _buffer(operation, order)) is not None]
    slots = _share(buffers)
    ir = bindings("ir")
    with module.context, ir.Location.unknown(module.context):
        for slot in slots:
            argument = block.add_argument(ir.Type.parse(slot.type.memref), function.operation.location)
            for buffer in slot.buffers:
                _view(buffer, argument)
        if slots:
            _retype(function, block)
            sizes = ir.DenseI64ArrayAttr.get([slot.bytes for slot in slots])
            module.operation.attributes[_RECORD] = sizes
    return tuple(slot.type for slot in slots)


def workspaces_of(module: Module) -> tuple[TensorType, ...]:
    """Give the types of the workspaces that ``main`` takes after its results; in any dialect."""
    if _RECORD not in module.operation.attributes:
        return ()
    return tuple(TensorType((size,), Element.I8) for size in module.operation.attributes[_RECORD])


@dataclass(slots=True)
class _Buffer:
    """An allocation that may move, and the top-level operations from the first to the last that touch it."""

    allocation: Operation
    bytes: int
    first: int
    last: int
    frees: list[Operation]


@dataclass(slots=True)
class _Slot:
    """Memory that buffers use one after the other."""

    bytes: int = 0
    busy_until: int = -1
    buffers: list[_Buffer] = field(default_factory=list)

    @property
    def type(self) -> TensorType:
        return TensorType((self.bytes,), Element.I8)

    def take(self, buffer: _Buffer) -> None:
        self.bytes = max(self.bytes, buffer.bytes)
        self.busy_until = buffer.last
        self.buffers.append(buffer)


def _share(buffers: Iterable[_Buffer]) -> list[_Slot]:
    """Give each buffer, in order of first use, the free slot that wastes or grows least, or a new one."""
    slots: list[_Slot] = []
    for buffer in sorted(buffers, key=lambda each: each.first):
        free = [slot for slot in slots if slot.busy_until < buffer.first]
        enough = [slot for slot in free if slot.bytes >= buffer.bytes]
        if enough:
            slot = min(enough, key=lambda each: each.bytes)
        elif free:
            slot = max(free, key=lambda each: each.bytes)
        else:
            slot = _Slot()
            slots.append(slot)
        slot.take(buffer)
    return slots


def _buffer(operation: Operation, order: dict[Operation, int]) -> _Buffer | None:
    """Look at one top-level operation: an allocation that may move, or None."""
    if operation.operation.name != "memref.alloc" or len(operation.operands):
        return None
    size = _bytes(operation)
    if not size:
        return None
    uses = _uses(operation.operation.results[0])
    if uses is None:
        return None
    frees, others = [], []
    for user in uses:
        (frees if user.name == "memref.dealloc" else others).append(user)
    if any(free.operands[0] != operation.operation.results[0] for free in frees):
        return None
    touched = [order[_at_top(user, order)] for user in others] or [order[operation.operation]]
    return _Buffer(operation, size, min(touched), max(touched), frees)


def _bytes(allocation: Operation) -> int | None:
    """How much memory it is; None where it is not plain memory of a known size."""
    ir = bindings("ir")
    type_ = ir.MemRefType(allocation.operation.results[0].type)
    if (
        not type_.has_static_shape
        or "strided<" in str(type_)
        or "affine_map<" in str(type_)
        or type_.memory_space
    ):
        return None
    if "alignment" in allocation.attributes and allocation.attributes["alignment"].value > ALIGNMENT:
        return None
    element = type_.element_type
    if isinstance(element, ir.IndexType):
        bits = 64
    elif isinstance(element, ir.IntegerType | ir.FloatType):
        bits = element.width
    else:
        return None
    count = 1
    for size in type_.shape:
        count *= size
    return count * ((bits + 7) // 8)


_HANDS_ON = (
    "func.return",
    "memref.extract_aligned_pointer_as_index",
    "bufferization.dealloc",
    "memref.realloc",
)
"""Operations after which it is not known who uses the buffer, or which own it."""


def _uses(value: Any) -> list[Operation] | None:
    """Find the operations that use ``value`` or what may be the same memory; None if it gets out of sight.

    A memref that comes out of an operation that has one of these going in counts as the same memory, and so do the
    memrefs that its regions take.
    """
    seen, pending, users = [value], [value], {}
    while pending:
        for use in pending.pop().uses:
            user = use.owner.operation
            if user.name in _HANDS_ON or (user.name == "memref.store" and use.operand_number == 0):
                return None
            users[user] = None
            for other in _may_be_same(user):
                if other not in seen:
                    seen.append(other)
                    pending.append(other)
    return list(users)


def _may_be_same(user: Operation) -> Iterator[Any]:
    """Give the memrefs that an operation may hand on: its results, its regions' arguments, its parent's."""
    holders = [user]
    # a terminator hands its operands to the operation around it: scf.yield to scf.for, and so on
    if user.name != "func.return" and not len(user.results) and user.parent.name != "func.func":
        holders.append(user.parent.operation)
    for holder in holders:
        for result in holder.results:
            if _is_memref(result):
                yield result
        for region in holder.regions:
            for block in region.blocks:
                yield from (argument for argument in block.arguments if _is_memref(argument))


def _is_memref(value: Any) -> bool:
    return str(value.type).startswith("memref<")


def _at_top(operation: Operation, order: dict[Operation, int]) -> Operation:
    while operation not in order:
        operation = operation.parent.operation
    return operation


def _view(buffer: _Buffer, argument: Any) -> None:
    ir = bindings("ir")
    with ir.InsertionPoint(buffer.allocation):
        zero = ir.Operation.create(
            "arith.constant",
            results=[ir.IndexType.get()],
            attributes={"value": ir.IntegerAttr.get(ir.IndexType.get(), 0)},
        )
        view = ir.Operation.create(
            "memref.view",
            results=[buffer.allocation.operation.results[0].type],
            operands=[argument, zero.result],
        )
    buffer.allocation.operation.results[0].replace_all_uses_with(view.result)
    for free in buffer.frees:
        free.erase()
    buffer.allocation.operation.erase()


def _retype(function: Operation, block: Any) -> None:
    ir = bindings("ir")
    inputs = [argument.type for argument in block.arguments]
    results = list(function.type.results)
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
    if "arg_attrs" in function.attributes:
        attributes = list(function.attributes["arg_attrs"])
        attributes += [ir.DictAttr.get({})] * (len(inputs) - len(attributes))
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
