"""What one iteration computes, as the planner must know it: which operations, and how its results accumulate."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from torchsched.bindings import Operation
from torchsched.transforms.vectors.nests import Body, Combiner
from torchsched.transforms.vectors.numbers import Numbers, bits_of, is_float, is_scalar

__all__ = ["ASSERTION", "FUNCTIONS", "read_body"]

Value = Any

ASSERTION = "cf.assert"
"""What torch-mlir writes where an index may lie outside."""

_PLAIN = frozenset(
    f"arith.{name}"
    for name in [
        "addf",
        "addi",
        "andi",
        "bitcast",
        "cmpf",
        "cmpi",
        "divf",
        "divsi",
        "divui",
        "extf",
        "extsi",
        "extui",
        "floordivsi",
        "ceildivsi",
        "fptosi",
        "fptoui",
        "index_cast",
        "index_castui",
        "maximumf",
        "maxnumf",
        "maxsi",
        "maxui",
        "minimumf",
        "minnumf",
        "minsi",
        "minui",
        "mulf",
        "muli",
        "negf",
        "ori",
        "remf",
        "remsi",
        "remui",
        "select",
        "shli",
        "shrsi",
        "shrui",
        "sitofp",
        "subf",
        "subi",
        "truncf",
        "trunci",
        "uitofp",
        "xori",
        "constant",
    ]
)
FUNCTIONS = frozenset(
    f"math.{name}"
    for name in [
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "cbrt",
        "cos",
        "cosh",
        "erf",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "fpowi",
        "ipowi",
        "log",
        "log10",
        "log1p",
        "log2",
        "powf",
        "sin",
        "sinh",
        "tan",
        "tanh",
    ]
)
_DIRECT_MATH = frozenset(
    f"math.{name}"
    for name in [
        "absf",
        "absi",
        "ceil",
        "copysign",
        "floor",
        "fma",
        "isfinite",
        "isinf",
        "isnan",
        "round",
        "roundeven",
        "rsqrt",
        "sqrt",
        "trunc",
    ]
)
_TRAPPING = frozenset(
    f"arith.{name}" for name in ["divsi", "divui", "floordivsi", "ceildivsi", "remsi", "remui"]
)
_COMBINERS = {
    "arith.addf": Combiner.ADD,
    "arith.addi": Combiner.ADD,
    "arith.mulf": Combiner.MUL,
    "arith.muli": Combiner.MUL,
    "arith.andi": Combiner.AND,
    "arith.ori": Combiner.OR,
    "arith.xori": Combiner.XOR,
    "arith.maximumf": Combiner.MAX_FLOAT,
    "arith.minimumf": Combiner.MIN_FLOAT,
    "arith.maxnumf": Combiner.MAX_NUMBER,
    "arith.minnumf": Combiner.MIN_NUMBER,
    "arith.maxsi": Combiner.MAX_SIGNED,
    "arith.minsi": Combiner.MIN_SIGNED,
    "arith.maxui": Combiner.MAX_UNSIGNED,
    "arith.minui": Combiner.MIN_UNSIGNED,
}
_EXTREMES = frozenset(
    {
        Combiner.MAX_FLOAT, Combiner.MIN_FLOAT, Combiner.MAX_NUMBER, Combiner.MIN_NUMBER,
        Combiner.MAX_SIGNED, Combiner.MIN_SIGNED, Combiner.MAX_UNSIGNED, Combiner.MIN_UNSIGNED,
    }
)  # fmt: skip


_LANE_OF_ITS_OWN = 32
"""What a boolean counts as: since each is written on its own, 512 of them in a vector are 512 stores, and with four
such vectors side by side LLVM took three minutes over ``~x | y`` of 1,000 elements."""


def read_body(operation: Operation, numbers: Numbers, picked: Container[Operation] = ()) -> Body | None:
    """Read the region of a structured operation; ``None`` where it holds what cannot be written over vectors.

    Args:
        operation: The operation.
        numbers: How its values are computed.
        picked: Reads in the body that are like those of an operand.
    """
    block = operation.regions[0].blocks[0]
    operations = functions = 0
    maskable = True
    bits: list[int] = []
    for inner in block.operations:
        name = inner.operation.name
        if name in ("linalg.yield", "linalg.index", "arith.constant"):
            continue
        if name == ASSERTION:
            maskable = False  # what a lane beyond the end holds may not be asserted of
            operations += 1
            continue
        if name == "tensor.extract":
            gathers = inner.operation not in picked
            maskable = maskable and not gathers
            operations += 16 if gathers else 1
        elif name in _PLAIN or name in _DIRECT_MATH:
            operations += 1
        elif name in FUNCTIONS:
            functions += 1
        else:
            return None
        if not all(is_scalar(each.type) for each in inner.operation.results):
            return None
        maskable = maskable and name not in _TRAPPING
    for argument in block.arguments:
        if not is_scalar(argument.type):
            return None
        bits.append(bits_of(numbers.computed(argument.type)))
    # a boolean takes a byte in memory, and a vector of booleans a bit each: they are written one by one
    maskable = maskable and all(str(each.type.element_type) != "i1" for each in operation.results)
    floats = [bits_of(numbers.computed(a.type)) for a in block.arguments if is_float(a.type)]
    return Body(
        combiners=tuple(_combiner(operation, result) for result in range(len(operation.results))),
        operations=operations,
        functions=functions,
        maskable=maskable,
        element_bits=max(floats or [_LANE_OF_ITS_OWN if each == 1 else each for each in bits] or [32]),
    )


# --- how a result takes in one more value ---------------------------------------------------------


def _combiner(operation: Operation, result: int) -> Combiner | None:
    block = operation.regions[0].blocks[0]
    yielded = list(block.operations)[-1].operation.operands
    accumulator = block.arguments[len(block.arguments) - len(operation.results) + result]
    last = _definition(yielded[result])
    if last is None:
        return None
    uses = [use.owner for use in accumulator.uses]
    found = _COMBINERS.get(last.name)
    if found is not None and accumulator in list(last.operands):
        others = [each for each in uses if each.operation != last]
        if not others:
            return found
        # the extreme may also be compared with, to note its place
        partner = result + 1
        if found in _EXTREMES and partner < len(yielded) and _is_place(operation, result, partner):
            return found
    if result > 0 and _is_place(operation, result - 1, result):
        return Combiner.PLACE
    return None


def _is_place(operation: Operation, extreme: int, place: int) -> bool:
    """Whether ``place`` is ``select(in > extreme so far, counter, place so far)``, and nothing else looks at both.

    Of floats the test is ``in > extreme so far, or in is NaN, and extreme so far is a number``.
    """
    block = operation.regions[0].blocks[0]
    yielded = list(block.operations)[-1].operation.operands
    first = len(block.arguments) - len(operation.results)
    best, where = block.arguments[first + extreme], block.arguments[first + place]
    chosen, picked = _definition(yielded[extreme]), _definition(yielded[place])
    if chosen is None or picked is None or picked.name != "arith.select" or chosen.name not in _COMBINERS:
        return False
    combiner = _COMBINERS[chosen.name]
    if combiner not in _EXTREMES or picked.operands[2] != where:
        return False
    test = _definition(picked.operands[0])
    tests = [test]
    if test is not None and test.name == "arith.andi":
        tests = [_definition(each) for each in test.operands]
        test, number = tests
        if number is None or number.name != "arith.cmpf" or list(number.operands) != [best, best]:
            return False
    if test is None or test.name not in ("arith.cmpf", "arith.cmpi"):
        return False
    value = chosen.operands[0] if chosen.operands[1] == best else chosen.operands[1]
    if list(test.operands) != [value, best] or best not in list(chosen.operands):
        return False
    predicate = test.attributes["predicate"].value
    # (cmpf ogt or olt), (sgt, slt), (ugt, ult), (cmpf ugt or ult, beside a test for NaN)
    wanted = {"max": (2, 4, 8, 9), "min": (4, 2, 6, 11)}[combiner[:3]]
    signed = {"maxsi", "minsi"}
    if test.name == "arith.cmpf":
        expected = wanted[0] if len(tests) == 1 else wanted[3]
    else:
        expected = wanted[1] if combiner in signed else wanted[2]
    only_there = {use.owner.operation for use in best.uses} <= {chosen, *tests} and len(list(where.uses)) == 1
    return predicate == expected and only_there


def _definition(value: Value) -> Operation | None:
    owner = value.owner
    return owner.operation if hasattr(owner, "opview") else None
