"""Copies padded tensors before products read them: a copy is made once, and a mask would be made at every read.

What reads an element once or a few times, such as a pooling, reads through the padding instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchsched.bindings import Module, Operation, bindings
from torchsched.targets import Target
from torchsched.transforms.vectors.reading import linear_in
from torchsched.transforms.vectors.views import RESHAPES

__all__ = ["copy_padding"]


def copy_padding(module: Module, *, target: Target) -> None:
    """Make a copy of each padded tensor that a product with another tensor reads, such as a convolution."""
    del target
    ir, tensor = bindings("ir"), bindings("dialects.tensor")
    with module.context, ir.Location.unknown(module.context):
        for operation in list(_of(module.operation, "tensor.pad")):
            padded = operation.results[0]
            if not padded.type.has_static_shape or not any(
                _multiplies(*reader) for reader in _readers(padded)
            ):
                continue
            uses = list(padded.uses)
            with _behind(operation):
                empty = tensor.empty(list(padded.type.shape), padded.type.element_type)
                copied = _copy(padded, empty)
            for use in uses:
                use.owner.operands[use.operand_number] = copied


def _behind(operation: Operation) -> Any:
    """Give the place after an operation."""
    ir = bindings("ir")
    block = operation.block
    operations = list(block.operations)
    following = operations[[each.operation for each in operations].index(operation) + 1]
    return ir.InsertionPoint(following)


def _copy(source: Any, destination: Any) -> Any:
    ir = bindings("ir")
    rank = source.type.rank
    map_ = ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    made = ir.Operation.create(
        "linalg.generic",
        results=[destination.type],
        operands=[source, destination],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([map_, map_]),
            "iterator_types": ir.ArrayAttr.get([parallel] * rank),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
        },
        regions=1,
    )
    element = source.type.element_type
    block = made.regions[0].blocks.append(element, element)
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[block.arguments[0]])
    return made.results[0]


def _readers(value: Any) -> Iterator[tuple[Operation, Any]]:
    """Give the operations that read a tensor, and which of its reshapes they read."""
    for use in value.uses:
        user = use.owner.operation
        if user.name in RESHAPES:
            yield from _readers(user.results[0])
        else:
            yield user, value


def _multiplies(operation: Operation, value: Any) -> bool:
    """Whether a reduction reads each element many times: one of its results' loops moves past it."""
    if operation.name != "linalg.generic":
        return False
    kinds = [str(kind) for kind in operation.attributes["iterator_types"]]
    maps = [each.value for each in operation.attributes["indexing_maps"]]
    if not any("reduction" in kind for kind in kinds):
        return False
    number = list(operation.operands).index(value)
    linear = linear_in(list(value.type.shape), maps[number], len(kinds))
    return linear is not None and any(
        "parallel" in kind and not stride for kind, stride in zip(kinds, linear[0], strict=True)
    )


def _of(operation: Operation, name: str) -> Iterator[Operation]:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.operation.name == name:
                    yield inner.operation
                yield from _of(inner.operation, name)
