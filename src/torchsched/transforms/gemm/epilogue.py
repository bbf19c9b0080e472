"""What is done to each sum before it is stored: the elementwise operation that alone uses a product, on vectors.

Owns which operations can go with a product, and what they read for a vector of sums. The body itself is written as
that of every other elementwise operation; tiles are unknown here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchsched.bindings import Operation, bindings
from torchsched.transforms.gemm.axes import UNIT, Part
from torchsched.transforms.gemm.contraction import Contraction
from torchsched.transforms.gemm.emit import Emitter, Index, Value
from torchsched.transforms.gemm.operands import Operand, viewed
from torchsched.transforms.vectors.bodies import read_body
from torchsched.transforms.vectors.functions import Functions
from torchsched.transforms.vectors.lanes import Copy, Lanes, Supply, Varying, converted
from torchsched.transforms.vectors.numbers import Numbers, is_float, numbers_of

__all__ = ["Epilogue", "apply_epilogue", "match_epilogue"]

SMALL = 8
"""Operations of a body that is repeated for each vector of a tile: there are 24 of them."""
_ONE = Copy(0, 0)


@dataclass(frozen=True, slots=True)
class Epilogue:
    """An elementwise operation on a product's result."""

    op: Operation
    operands: tuple[Operand | None, ...]
    """Its inputs with the loops over their dimensions, a joined one or one of its own by its number; ``None`` stands
    for the product's result."""
    loops: tuple[Part | None, ...]
    """For each of its own loops, the part of a product's loop that it is; ``None`` where it has one turn."""
    numbers: Numbers
    """Which types are computed in which."""

    @property
    def small(self) -> bool:
        """Whether its body may stand in the code once for every vector of a tile: short, and without functions."""
        body = read_body(self.op, self.numbers)
        return body is not None and body.operations <= SMALL and not body.functions


def match_epilogue(contraction: Contraction) -> Epilogue | None:
    """Find the elementwise operation that uses the product's result, if one does and nothing else does."""
    uses = list(contraction.op.results[0].uses)
    if len(uses) != 1:
        return None
    op = uses[0].owner.operation
    numbers = numbers_of(contraction.op.parent)
    if op.name != "linalg.generic" or len(op.results) != 1 or not _is_elementwise(op, numbers):
        return None
    maps = _maps(op, len(contraction.loops))
    everything = tuple(range(len(contraction.loops)))
    inputs = list(op.operands)[:-1]
    if maps is None or maps[-1] != everything or uses[0].operand_number >= len(inputs):
        return None
    if any(
        _counts_columns(inner.operation, contraction.loops) for inner in op.regions[0].blocks[0].operations
    ):
        return None
    operands: list[Operand | None] = []
    for number, (value, dims) in enumerate(zip(inputs, maps[:-1], strict=True)):
        operand = None
        if number != uses[0].operand_number:
            operand = _operand(value, dims, contraction.loops, op)
            if operand is None:
                return None
        elif dims != everything:
            return None
        operands.append(operand)
    return Epilogue(op, tuple(operands), contraction.loops, numbers)


def apply_epilogue(
    e: Emitter, epilogue: Epilogue, sums: Value, at: Mapping[str, Index], mask: Value | None
) -> Value:
    """Write the body for the sums at ``at`` and their neighbours along ``n``.

    Args:
        e: Writes.
        epilogue: What to compute.
        sums: A vector of the product's results, or one of them.
        at: The index of each loop, that of ``n`` for the first lane.
        mask: The lanes that are in the result; ``None`` for all.
    """
    op, numbers = epilogue.op, epilogue.numbers
    indices = {**at, **_own_indices(e, epilogue, at)}
    width = sums.type.shape[0] if e.is_vector(sums) else 1

    def argument(number: int, _: Copy) -> Value:
        operand = epilogue.operands[number]
        value = sums
        if operand is not None:
            along = argument_varies(number).lanes
            places = operand.places(indices)
            value = e.read(operand.value, places, width if along else 1, mask if along else None)
        element = value.type.element_type if e.is_vector(value) else value.type
        return converted(e, value, numbers.computed(element)) if is_float(element) else value

    def argument_varies(number: int) -> Varying:
        operand = epilogue.operands[number]
        return Varying(lanes=operand is None or operand.axes[-1:] == ("n",))

    def counter(dimension: int, _: Copy) -> Value:
        first = e.index(indices[str(dimension)])
        if width == 1 or not counter_varies(dimension).lanes:
            return first
        return e.arith.addi(e.splat(first, width), e.steps(width))

    def counter_varies(dimension: int) -> Varying:
        part = epilogue.loops[dimension]
        return Varying(lanes=part is not None and part.axis == "n")

    module = _module_of(op)
    lanes = Lanes(e, Functions(e, module=module), numbers, width)
    supply = Supply(argument, argument_varies, counter, counter_varies, gather=_no_gather)
    (result,) = lanes.write(op, [_ONE], supply)
    element = op.results[0].type.element_type
    value = converted(e, result[_ONE], element) if is_float(element) else result[_ONE]
    return e.splat(value, width)


def _is_elementwise(op: Operation, numbers: Numbers) -> bool:
    """Whether every loop is parallel, and the body is arithmetic that any lane may do and reads no old result."""
    if any("parallel" not in str(kind) for kind in op.attributes["iterator_types"]):
        return False
    block = op.regions[0].blocks[0]
    if list(block.arguments[len(block.arguments) - 1].uses):
        return False
    body = read_body(op, numbers)
    return body is not None and body.maskable


def _is_boolean(value: Value) -> bool:
    """Booleans take a byte each in memory and a bit each in a vector: one cannot be read as the other."""
    return str(value.type.element_type) == "i1"


def _maps(op: Operation, loops: int) -> list[tuple[int | None, ...]] | None:
    """Give the loop over each dimension of each operand, ``None`` over a unit; the last operand is the result."""
    ir = bindings("ir")
    maps = [attribute.value for attribute in op.attributes["indexing_maps"]]
    if maps[-1].n_dims != loops:
        return None
    found = []
    for each in maps:
        dims: list[int | None] = []
        for expression in each.results:
            if isinstance(expression, ir.AffineDimExpr):
                dims.append(expression.position)
            elif isinstance(expression, ir.AffineConstantExpr) and expression.value == 0:
                dims.append(None)
            else:
                return None
        found.append(tuple(dims))
    return found


def _operand(
    value: Value, dims: tuple[int | None, ...], loops: tuple[Part | None, ...], op: Operation
) -> Operand | None:
    """See an input with the product's loops where it has all parts of one side by side, and else with its own."""
    used = [dim for dim in dims if dim is not None and loops[dim] is not None]
    members: dict[str, list[int]] = {}
    for dim, part in enumerate(loops):
        if part is not None:
            members.setdefault(part.axis, []).append(dim)
    joined_as = {str(dim): str(dim) for dim in used}
    for axis, own in members.items():
        begin = used.index(own[0]) if own[0] in used else len(used)
        if used[begin : begin + len(own)] == own:
            joined_as.update({str(dim): axis for dim in own})
        elif axis == "n" and set(own) & set(used):
            return None
    operand = Operand(value, tuple(UNIT if dim is None else str(dim) for dim in dims))
    seen = viewed(operand, joined_as, op)
    return None if _is_boolean(value) or "n" in seen.axes[:-1] else seen


def _counts_columns(op: Operation, loops: tuple[Part | None, ...]) -> bool:
    """Whether an operation asks for the number of a loop that is one of several parts of ``n``."""
    if op.name != "linalg.index":
        return False
    part = loops[int(op.attributes["dim"])]
    return (
        part is not None
        and part.axis == "n"
        and sum(each is not None and each.axis == "n" for each in loops) > 1
    )


def _own_indices(e: Emitter, epilogue: Epilogue, at: Mapping[str, Index]) -> dict[str, Index]:
    """Give the indices of the operation's own loops that it needs, from those of the product's."""
    used = {axis for operand in epilogue.operands if operand is not None for axis in operand.axes}
    for inner in epilogue.op.regions[0].blocks[0].operations:
        if inner.operation.name == "linalg.index":
            used.add(str(int(inner.operation.attributes["dim"])))
    found: dict[str, Index] = {}
    for number, part in enumerate(epilogue.loops):
        if str(number) not in used:
            continue
        if part is None:
            found[str(number)] = 0
            continue
        alone = sum(each is not None and each.axis == part.axis for each in epilogue.loops) == 1
        index = e.div(at[part.axis], part.stride)
        found[str(number)] = index if alone else e.rem(index, part.size)
    return found


def _module_of(op: Operation) -> Any:
    parent = op.parent
    while parent.operation.name != "builtin.module":
        parent = parent.operation.parent
    return parent


def _no_gather(*_: object) -> Value:
    raise AssertionError("a body that reads tensors is no epilogue")
