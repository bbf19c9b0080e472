"""What is done to each sum before it is stored: the elementwise operation that alone uses a product, on vectors.

Owns recognising one and writing its body for a vector of neighbours. Knows nothing of tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelmark.mlir.bindings import Operation, bindings
from kernelmark.mlir.transforms.gemm.contraction import Contraction, Operand, squeezed
from kernelmark.mlir.transforms.gemm.emit import Emitter, Value

__all__ = ["Epilogue", "apply_epilogue", "match_epilogue"]


SMALL = 8
"""Operations of a body that is repeated for each vector of a tile: there are 24 of them."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """An elementwise operation on a product's result."""

    op: Operation
    operands: tuple[Operand | None, ...]
    """Its inputs with the loops over their dimensions; ``None`` stands for the product's result."""
    loops: tuple[str, ...]
    """The product's loop that each of its own loops is."""

    @property
    def element(self) -> Any:
        """The type of what it computes."""
        return self.op.results[0].type.element_type

    @property
    def small(self) -> bool:
        """Whether its body may stand in the code once for every vector of a tile: short, and without calls."""
        body = list(self.op.regions[0].blocks[0].operations)
        return len(body) <= SMALL and not any(op.operation.name.startswith("math.") for op in body)


def match_epilogue(contraction: Contraction) -> Epilogue | None:
    """Find the elementwise operation that uses the product's result, if one does and nothing else does."""
    uses = list(contraction.op.results[0].uses)
    if len(uses) != 1:
        return None
    op = uses[0].owner.operation
    if op.name != "linalg.generic" or len(op.results) != 1 or not _is_elementwise(op):
        return None
    maps = _read_maps(op, contraction)
    if maps is None:
        return None
    operands: list[Operand | None] = []
    inputs = list(op.operands)[:-1]
    for number, (value, axes) in enumerate(zip(inputs, maps[:-1], strict=True)):
        if number == uses[0].operand_number:
            operands.append(None)
            if axes != maps[-1]:
                return None
        else:
            operand = squeezed(Operand(value, axes), op)
            if _is_boolean(value) or "n" in operand.axes[:-1]:
                return None
            operands.append(operand)
    if uses[0].operand_number >= len(inputs) or maps[-1] != contraction.loops or _is_boolean(op.results[0]):
        return None
    return Epilogue(op, tuple(operands), contraction.loops)


def apply_epilogue(
    e: Emitter, epilogue: Epilogue, sums: Value, at: Mapping[str, Any], mask: Value | None
) -> Value:
    """Write the body for the sums at ``at`` and their neighbours along ``n``.

    Args:
        e: Writes.
        epilogue: What to compute.
        sums: A vector of the product's results.
        at: The index of each loop, that of ``n`` for the first lane.
        mask: The lanes that are in the result; ``None`` for all.
    """
    lanes = sums.type.shape[0]
    block = epilogue.op.regions[0].blocks[0]
    known: dict[Value, Value] = {}
    for argument, operand in zip(block.arguments, epilogue.operands, strict=False):
        known[argument] = sums if operand is None else _load(e, operand, at, lanes, mask)
    for op in list(block.operations)[:-1]:
        for result, vector in zip(
            op.results, _vectorised(e, op, known, epilogue.loops, at, lanes), strict=True
        ):
            known[result] = vector
    return _known(e, known, block.operations[len(block.operations) - 1].operands[0], lanes)


def _is_elementwise(op: Operation) -> bool:
    """Whether every loop is parallel and the body is arithmetic on numbers that does not read the old result."""
    if any("parallel" not in str(kind) for kind in op.attributes["iterator_types"]):
        return False
    block = op.regions[0].blocks[0]
    if list(block.arguments[len(block.arguments) - 1].uses):
        return False
    return all(_is_vectorisable(each.operation) for each in list(block.operations)[:-1])


def _is_vectorisable(op: Operation) -> bool:
    if op.name == "linalg.index":
        return True
    return op.name.startswith(("arith.", "math.")) and len(op.regions) == 0


def _is_boolean(value: Value) -> bool:
    """Booleans take a byte each in memory and a bit each in a vector: one cannot be read as the other."""
    return str(value.type.element_type) == "i1"


def _read_maps(op: Operation, contraction: Contraction) -> list[tuple[str, ...]] | None:
    """Give the product's loop over each dimension of each operand; the last operand is the result."""
    ir = bindings("ir")
    maps = [attribute.value for attribute in op.attributes["indexing_maps"]]
    written = maps[-1]
    if written != ir.AffineMap.get_identity(written.n_dims) or written.n_dims != len(contraction.loops):
        return None
    found = []
    for each in maps:
        axes = []
        for expression in each.results:
            if isinstance(expression, ir.AffineDimExpr):
                axes.append(contraction.loops[expression.position])
            elif isinstance(expression, ir.AffineConstantExpr) and expression.value == 0:
                axes.append("1")
            else:
                return None
        found.append(tuple(axes))
    return found


def _load(e: Emitter, operand: Operand, at: Mapping[str, Any], lanes: int, mask: Value | None) -> Value:
    places = operand.places(at)
    if operand.axes and operand.axes[-1] == "n":
        return e.read(operand.value, places, lanes, mask)
    return e.splat(e.extract(operand.value, places), lanes)


def _vectorised(
    e: Emitter,
    op: Operation,
    known: Mapping[Value, Value],
    loops: tuple[str, ...],
    at: Mapping[str, Any],
    lanes: int,
) -> list[Value]:
    op = op.operation
    types = [e.vector_type(lanes, result.type) for result in op.results]
    if op.name == "linalg.index":
        axis = loops[int(op.attributes["dim"])]
        first = e.splat(e.value(at[axis]), lanes)
        return [e.arith.addi(first, e.vector.step(types[0])) if axis == "n" else first]
    if op.name == "arith.constant":
        return [e.splat(e.arith.constant(op.results[0].type, op.attributes["value"]), lanes)]
    operands = [_known(e, known, each, lanes) for each in op.operands]
    made = e.ir.Operation.create(
        op.name,
        results=types,
        operands=operands,
        attributes={each.name: each.attr for each in _attributes(op)},
    )
    return list(made.results)


def _attributes(op: Operation) -> list[Any]:
    return [op.attributes[number] for number in range(len(op.attributes))]


def _known(e: Emitter, known: Mapping[Value, Value], value: Value, lanes: int) -> Value:
    """Give the vector for a number of the body; a number from outside the body fills one."""
    return known[value] if value in known else e.splat(value, lanes)
