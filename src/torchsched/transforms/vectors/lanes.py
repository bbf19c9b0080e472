"""Writes what one iteration computes, for all the vectors and jammed iterations of a tile at once.

A value that is the same for all of them is computed once and as a scalar: loop-invariant motion then takes it out
of the loops that do not change it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torchsched.bindings import Operation
from torchsched.transforms.vectors.bodies import ASSERTION, FUNCTIONS
from torchsched.transforms.vectors.combining import reduce_vector
from torchsched.transforms.vectors.functions import Functions
from torchsched.transforms.vectors.nests import Combiner
from torchsched.transforms.vectors.numbers import Numbers, is_float
from torchsched.transforms.vectors.writing import Writer

__all__ = ["Copy", "Lanes", "Supply", "Varying", "converted"]

Value = Any


@dataclass(frozen=True, slots=True, order=True)
class Copy:
    """One of the copies of an iteration that a tile holds."""

    jam: int
    offset: int
    """The element that its vector begins at, from the start of the tile."""
    row: int = 0


@dataclass(frozen=True, slots=True)
class Varying:
    """Whether a value differs among the copies."""

    jam: bool = False
    lanes: bool = False
    """From lane to lane, and so from vector to vector."""
    row: bool = False

    def __or__(self, other: Varying) -> Varying:
        return Varying(self.jam or other.jam, self.lanes or other.lanes, self.row or other.row)

    def of(self, copy: Copy) -> Copy:
        """Give the copy whose value stands for that of ``copy``."""
        return Copy(
            copy.jam if self.jam else 0, copy.offset if self.lanes else 0, copy.row if self.row else 0
        )


@dataclass(frozen=True, slots=True)
class Supply:
    """Where the arguments of a body come from."""

    argument: Callable[[int, Copy], Value]
    argument_varies: Callable[[int], Varying]
    counter: Callable[[int, Copy], Value]
    counter_varies: Callable[[int], Varying]
    gather: Callable[[Value, list[Value], bool], Value]
    """Reads elements of a tensor at computed places."""
    pick: Callable[[Operation, Copy], Value] | None = None
    """Reads for an operation in the body that reads a tensor at places linear in the loop counters."""
    pick_varies: Callable[[Operation], Varying | None] = lambda operation: None
    """Whether that differs among the copies; ``None`` for an operation that is no such read."""


class Lanes:
    """Writes the body of one operation."""

    def __init__(self, writer: Writer, functions: Functions, numbers: Numbers, width: int) -> None:
        self._writer = writer
        self._functions = functions
        self._numbers = numbers
        self._width = width
        self._splats: dict[Value, Value] = {}

    def write(self, operation: Operation, copies: Sequence[Copy], supply: Supply) -> list[dict[Copy, Value]]:
        """Write the body once a copy; give each result by copy."""
        block = operation.regions[0].blocks[0]
        varying: dict[Value, Varying] = {}
        numbers = {argument: k for k, argument in enumerate(block.arguments)}
        values: dict[tuple[Value, Copy], Value] = {}

        def varies(value: Value) -> Varying:
            if value in varying:
                return varying[value]
            if value in numbers:
                varying[value] = supply.argument_varies(numbers[value])
                return varying[value]
            return Varying()

        def get(value: Value, copy: Copy) -> Value:
            key = (value, varies(value).of(copy))
            if key not in values:
                if value in numbers:
                    values[key] = supply.argument(numbers[value], key[1])
                else:  # defined outside
                    values[key] = self._adopt(value)
            return values[key]

        operations = [view.operation for view in block.operations]
        yielded = list(operations[-1].operands)
        needed = self._needed(operations, supply)
        for inner in operations[:-1]:
            if inner not in needed:
                continue
            kind = self._kind(inner, supply, varies)
            if inner.name == ASSERTION:
                for copy in sorted({kind.of(each) for each in copies}):
                    self._assert(inner, get(inner.operands[0], copy))
                continue
            varying[inner.results[0]] = kind
            for copy in sorted({kind.of(each) for each in copies}):
                if supply.pick is not None and supply.pick_varies(inner) is not None:
                    value = supply.pick(inner, copy)
                else:
                    operands = [get(each, copy) for each in inner.operands]
                    value = self._operation(inner, operands, kind, copy, supply)
                values[inner.results[0], copy] = value
        return [{copy: get(value, copy) for copy in copies} for value in yielded]

    def _needed(self, operations: list[Operation], supply: Supply) -> set[Operation]:
        """Find the operations that the results depend on; not those that only say where a pick reads."""
        needed = {operations[-1], *(each for each in operations if each.name == ASSERTION)}
        for inner in reversed(operations):
            if inner in needed and supply.pick_varies(inner) is None:
                needed.update(each.owner for each in inner.operands if hasattr(each.owner, "opview"))
        return needed

    def _assert(self, inner: Operation, holds: Value) -> None:
        """Write that a condition holds, in every lane: where it does not, the program ends with the message."""
        if self._writer.is_vector(holds):
            holds = reduce_vector(self._writer, Combiner.AND, holds)
        made = self._writer.ir.Operation.create
        made(ASSERTION, operands=[holds], attributes={"msg": inner.attributes["msg"]})

    def _kind(self, inner: Operation, supply: Supply, varies: Callable[[Value], Varying]) -> Varying:
        if inner.name == "linalg.index":
            return supply.counter_varies(inner.attributes["dim"].value)
        picked = supply.pick_varies(inner)
        if picked is not None:
            return picked
        kind = Varying()
        for operand in inner.operands:
            kind = kind | varies(operand)
        return kind

    def _operation(
        self, inner: Operation, operands: list[Value], kind: Varying, copy: Copy, supply: Supply
    ) -> Value:
        writer, name = self._writer, inner.name
        width = self._width if kind.lanes else 1
        if name == "linalg.index":
            return supply.counter(inner.attributes["dim"].value, copy)
        if name == "arith.constant":
            return self._constant(inner)
        if name == "tensor.extract":
            return supply.gather(inner.operands[0], operands[1:], kind.lanes)
        wanted = self._numbers.computed(inner.results[0].type)
        if name == "math.fpowi" or (name == "math.powf" and _number(inner.operands[1]) is not None):
            return self._power(inner, operands, width)
        if name in ("arith.extf", "arith.truncf"):
            return self._converted(operands[0], wanted)
        operands = [self._splat(each, width) for each in operands]
        if name == "arith.bitcast":
            operands = [self._converted(operands[0], inner.operands[0].type)]
            wanted = inner.results[0].type
        if name in FUNCTIONS and width > 1:
            return self._functions.write(name, operands, width)
        result = writer.vector_type(width, wanted) if width > 1 else wanted
        attributes = {key: inner.attributes[key] for key in inner.attributes}
        if is_float(wanted) and name in _LIBERTIES:
            attributes["fastmath"] = writer.ir.Attribute.parse(f"#arith.fastmath<{_LIBERTIES[name]}>")
        made = writer.op(name, [result], operands, **attributes)
        return self._converted(made, self._numbers.computed(wanted)) if name == "arith.bitcast" else made

    def _power(self, inner: Operation, operands: list[Value], width: int) -> Value:
        """Write a power: as products and roots where the exponent is known and small, else as any power."""
        writer = self._writer
        base, exponent = operands
        known = _number(inner.operands[1])
        if known is not None and (power := self._functions.power(base, known)) is not None:
            return power
        if inner.name == "math.fpowi":
            float_ = base.type.element_type if writer.is_vector(base) else base.type
            if writer.is_vector(exponent):
                float_ = writer.vector_type(exponent.type.shape[0], float_)
            exponent = writer.op("arith.sitofp", [float_], [exponent])
        base, exponent = self._splat(base, width), self._splat(exponent, width)
        if width > 1:
            return self._functions.write("math.powf", [base, exponent], width)
        return writer.op("math.powf", [base.type], [base, exponent])

    def _splat(self, value: Value, width: int) -> Value:
        if width == 1 or self._writer.is_vector(value):
            return value
        if value not in self._splats:
            self._splats[value] = self._writer.splat(value, width)
        return self._splats[value]

    def _constant(self, inner: Operation) -> Value:
        writer = self._writer
        element = inner.results[0].type
        if is_float(element):
            number = inner.attributes["value"].value
            return writer.constant(self._numbers.computed(element), number)
        return writer.arith.constant(element, inner.attributes["value"])

    def _adopt(self, value: Value) -> Value:
        return self._converted(value, self._numbers.computed(value.type)) if is_float(value.type) else value

    def _converted(self, value: Value, element: Any) -> Value:
        return converted(self._writer, value, element)


def _number(value: Value) -> float | None:
    """Give the number that a value is known to be."""
    owner = value.owner
    if hasattr(owner, "opview") and owner.name in ("arith.truncf", "arith.extf"):
        return _number(owner.operands[0])
    if hasattr(owner, "opview") and owner.name == "arith.constant":
        return owner.attributes["value"].value
    return None


_LIBERTIES = {
    "arith.addf": "contract",
    "arith.subf": "contract",
    "arith.mulf": "contract",
    "arith.divf": "contract,arcp",
    "arith.maximumf": "nsz",
    "arith.minimumf": "nsz",
}
"""What LLVM may do: fuse a product and a sum, divide by multiplying with a reciprocal, and take either zero for the
larger one, which spares two of five instructions."""


def converted(writer: Writer, value: Value, element: Any) -> Value:
    """Give a floating-point value, scalar or vector, in another floating-point type."""
    vector = writer.is_vector(value)
    had = value.type.element_type if vector else value.type
    if had == element:
        return value
    sizes = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}
    wanted = writer.vector_type(value.type.shape[0], element) if vector else element
    if sizes[str(had)] == 16 and sizes[str(element)] == 16:
        value = converted(writer, value, writer.ir.F32Type.get())
    longer = sizes[str(element)] > sizes[str(had)]
    return writer.op("arith.extf" if longer else "arith.truncf", [wanted], [value])
