"""Turns the structured operations of a module into vector loops: reads, groups, plans and writes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torchsched.bindings import Module, Operation, bindings
from torchsched.in_place import allow, destinations
from torchsched.results import ENTRY
from torchsched.targets import Architecture, Feature, Target
from torchsched.transforms.vectors.functions import Functions
from torchsched.transforms.vectors.grouping import Limits, grouped
from torchsched.transforms.vectors.kernels import Parallel, write_group
from torchsched.transforms.vectors.numbers import numbers_of
from torchsched.transforms.vectors.overwriting import overwritable
from torchsched.transforms.vectors.plans import Choices
from torchsched.transforms.vectors.reading import read_program
from torchsched.transforms.vectors.state import Kit
from torchsched.transforms.vectors.views import RESHAPES, root_of
from torchsched.transforms.vectors.writing import Writer

__all__ = ["vectorise"]


def vectorise(
    module: Module,
    *,
    target: Target,
    unroll: int = 4,
    partials: int = 4,
    jam: int = 6,
    block: int = 64,
    grain: int = 32768,
) -> None:
    """Write each ``linalg.generic`` whose accesses are linear as loops over vectors; the rest stays as it is.

    Those that hand tensors on run together, row by row, where that can be.

    Args:
        module: On tensors.
        target: What the code is for.
        unroll: Vectors computed side by side.
        partials: Vectors of partial results that a reduction along contiguous elements keeps.
        jam: Neighbouring iterations that share what they read, where results stay in registers.
        block: Rows taken together where they lie side by side in memory.
        grain: Elements below which one thread does all.
    """
    ir = bindings("ir")
    many = target.name != Architecture.X86_64 or Feature.AVX512 in target.features
    choices = Choices(
        vector_bits=target.vector_bits,
        unroll=unroll,
        partials=partials,
        jam=jam,
        block=block,
        registers=32 if many else 16,
    )
    parallel = Parallel(threads=target.code_threads, grain=grain)
    with module.context, ir.Location.unknown(module.context):
        for operation in module.body.operations:
            if operation.operation.name == "func.func" and len(operation.operation.regions[0].blocks) == 1:
                _function(module, operation, choices, parallel)
    module.operation.verify()


def _function(module: Module, function: Operation, choices: Choices, parallel: Parallel) -> None:
    numbers = numbers_of(function)
    block = function.operation.regions[0].blocks[0]
    pairs = overwritable(block, destinations(module)) if function.name.value == ENTRY else ()
    if pairs:
        allow(module, pairs)
        choices = replace(choices, once=True)
    program = read_program(block, numbers)
    writer = Writer()
    kit = Kit(writer, Functions(writer, module=module), numbers)
    sizes = {number: buffer.size for number, buffer in enumerate(program.buffers)}
    for group in grouped(program.nests, program.needs, sizes, Limits(block=choices.block)):
        write_group(group, program, kit, choices, parallel)
    _in_order(block)
    _shape_destinations(block, writer)


def _shape_destinations(block: Any, writer: Writer) -> None:
    """Give destinations the shape of what is written into them, so that it can be computed there.

    Bufferisation looks through loops for a tensor that may live in a destination, and not through reshapes.
    """
    memref = bindings("dialects.memref")
    for view in list(block.operations):
        operation = view.operation
        if operation.name != "bufferization.materialize_in_destination":
            continue
        source, destination = operation.operands
        root = root_of(source, RESHAPES)
        if root == source or not isinstance(destination.type, writer.ir.MemRefType):
            continue
        with writer.ir.InsertionPoint.at_block_begin(block), operation.location:
            operation.operands[1] = _reshaped_memref(memref, writer.ir, destination, list(root.type.shape))
        operation.operands[0] = root


def _reshaped_memref(memref: Any, ir: Any, buffer: Any, shape: list[int]) -> Any:
    had = list(buffer.type.shape)
    element = buffer.type.element_type
    size = 1
    for each in had:
        size *= each
    if len(had) != 1:
        groups = [list(range(len(had)))] if had else []
        flat = ir.MemRefType.get([size], element)
        make = memref.collapse_shape if had else memref.expand_shape
        buffer = make(flat, buffer, groups) if had else make(flat, buffer, [], [], [1])
    if shape == [size]:
        return buffer
    wanted = ir.MemRefType.get(shape, element)
    if not shape:
        return memref.collapse_shape(wanted, buffer, [])
    return memref.expand_shape(wanted, buffer, [list(range(len(shape)))], [], shape)


def _in_order(block: Any) -> None:
    """Put each operation after those whose results it uses; otherwise leave the order as it is."""
    operations = [each.operation for each in block.operations]
    place = {operation: k for k, operation in enumerate(operations)}
    done: set[int] = set()
    order: list[Operation] = []

    def visit(k: int) -> None:
        if k in done:
            return
        done.add(k)
        for value in _values(operations[k]):
            owner = value.owner
            if hasattr(owner, "opview") and owner in place:
                visit(place[owner])
        order.append(operations[k])

    for k in range(len(operations)):
        visit(k)
    if order != operations:
        last = order[-1]
        for operation in order[:-1]:
            operation.move_before(last)


def _values(operation: Operation) -> Any:
    yield from operation.operands
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _values(inner.operation)
