"""Writes how results accumulate: neutral values, taking in one more, putting partial results together."""

from __future__ import annotations

from typing import Any

from torchsched.transforms.vectors.nests import Combiner
from torchsched.transforms.vectors.numbers import bits_of, is_float
from torchsched.transforms.vectors.writing import Writer

__all__ = ["combine", "joined_place", "neutral", "reduce_place", "reduce_vector"]

Value = Any

_FLOAT = {Combiner.ADD: "addf", Combiner.MUL: "mulf"}
_INTEGER = {
    Combiner.ADD: "addi",
    Combiner.MUL: "muli",
    Combiner.AND: "andi",
    Combiner.OR: "ori",
    Combiner.XOR: "xori",
}


def _element(writer: Writer, value: Value) -> Any:
    return value.type.element_type if writer.is_vector(value) else value.type


def combine(writer: Writer, combiner: Combiner, left: Value, right: Value) -> Value:
    """Put two partial results together."""
    float_ = is_float(_element(writer, left))
    name = (_FLOAT if float_ else _INTEGER).get(combiner, combiner.value)
    return writer.op(f"arith.{name}", [left.type], [left, right])


def neutral(writer: Writer, combiner: Combiner, element: Any) -> Value:
    """Give the value that changes nothing."""
    if is_float(element):
        least, most = float("-inf"), float("inf")
    else:
        bits = bits_of(element)
        least, most = (-1, 0) if bits == 1 else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    number = {
        Combiner.MUL: 1,
        Combiner.AND: -1,
        Combiner.MAX_FLOAT: least,
        Combiner.MAX_NUMBER: least,
        Combiner.MAX_SIGNED: least,
        Combiner.MIN_FLOAT: most,
        Combiner.MIN_NUMBER: most,
        Combiner.MIN_SIGNED: most,
        Combiner.MIN_UNSIGNED: -1,
    }.get(combiner, 0)
    return writer.constant(element, number)


def reduce_vector(writer: Writer, combiner: Combiner, vector: Value) -> Value:
    """Combine the lanes of a vector; a scalar is left as it is."""
    if not writer.is_vector(vector):
        return vector
    element = vector.type.element_type
    flags = {}
    if is_float(element) and combiner.rounds:
        # without leave to reorder, LLVM adds the lanes one after the other
        flags["fastmath"] = writer.ir.Attribute.parse("#arith.fastmath<reassoc>")
    kind = writer.ir.Attribute.parse(f"#vector.kind<{combiner.value}>")
    return writer.op("vector.reduction", [element], [vector], kind=kind, **flags)


def _compare(writer: Writer, float_name: int, integer_name: int, left: Value, right: Value) -> Value:
    ir = writer.ir
    predicate = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0)
    float_ = is_float(_element(writer, left))
    predicate = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), float_name if float_ else integer_name)
    boolean = ir.IntegerType.get_signless(1)
    result = writer.vector_type(left.type.shape[0], boolean) if writer.is_vector(left) else boolean
    return writer.op("arith.cmpf" if float_ else "arith.cmpi", [result], [left, right], predicate=predicate)


_BETTER = {  # numbers of MLIR's predicates: (cmpf, cmpi)
    Combiner.MAX_FLOAT: (2, 4), Combiner.MAX_NUMBER: (2, 4), Combiner.MAX_SIGNED: (2, 4),
    Combiner.MAX_UNSIGNED: (2, 8),
    Combiner.MIN_FLOAT: (4, 2), Combiner.MIN_NUMBER: (4, 2), Combiner.MIN_SIGNED: (4, 2),
    Combiner.MIN_UNSIGNED: (4, 6),
}  # fmt: skip
_EQUAL = (1, 0)
_BEFORE = (4, 2)
_NAN = (14, 1)
"""Of a value and itself: whether it is NaN, which a whole number never is."""
_NUMBER = (7, 0)
"""Of a value and itself: whether it is none."""


def joined_place(
    writer: Writer, extreme: Combiner, first: tuple[Value, Value], second: tuple[Value, Value]
) -> tuple[Value, Value]:
    """Put two extremes and their places together; of equal ones the place that comes first counts."""
    (best, where), (other, there) = first, second
    better = _compare(writer, *_BETTER[extreme], other, best)
    equal = _compare(writer, *_EQUAL, other, best)
    earlier = _compare(writer, *_BEFORE, there, where)

    def either(first: Value, second: Value) -> Value:
        return writer.op("arith.ori", [first.type], [first, second])

    def both(first: Value, second: Value) -> Value:
        return writer.op("arith.andi", [first.type], [first, second])

    if is_float(_element(writer, best)):
        # NaN is better than any number, and all NaN are equal
        was, is_ = (_compare(writer, *_NAN, each, each) for each in (best, other))
        equal = either(equal, both(was, is_))
        better = either(better, both(is_, _compare(writer, *_NUMBER, best, best)))
    take = either(better, both(equal, earlier))
    return (
        combine(writer, extreme, best, other),
        writer.op("arith.select", [where.type], [take, there, where]),
    )


def reduce_place(writer: Writer, extreme: Combiner, best: Value, where: Value) -> tuple[Value, Value]:
    """Combine the lanes of an extreme and of its place."""
    if not writer.is_vector(best):
        return best, where
    width = best.type.shape[0]
    found = reduce_vector(writer, extreme, best)
    equal = _compare(writer, *_EQUAL, best, writer.splat(found, width))
    if is_float(best.type.element_type):
        # where the extreme is NaN no lane equals it, and those that are NaN count
        nan = _compare(writer, *_NAN, best, best)
        equal = writer.op("arith.ori", [equal.type], [equal, nan])
    beyond = writer.splat(neutral(writer, Combiner.MIN_SIGNED, where.type.element_type), width)
    candidates = writer.op("arith.select", [where.type], [equal, where, beyond])
    return found, reduce_vector(writer, Combiner.MIN_SIGNED, candidates)
