"""Functions such as exp over vectors: written out where that is short, else called in glibc's vector library.

Written out are exp, log, tanh, erf and what follows from them, in f32, from polynomials and quotients of them that
``studies/fit_functions.py`` computes; that file prints the coefficients, and the tests hold the errors. What is
neither written out nor in the library stays as it is, and is lowered to one call a lane.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from torchsched.transforms.vectors.writing import Writer

__all__ = ["Functions", "vector_library"]

Value = Any

_EXP = (0.0013926926, 0.0083637739, 0.0416665501, 0.1666657338, 0.5)
"""(exp(r) - 1 - r) / r² where |r| is at most half of ln 2; the highest power first, as everywhere here."""
_LOG = (
    -0.0767364150, 0.1272267279, -0.1312755566, 0.1420485595, -0.1662664563, 0.2000123446, -0.2500078124,
    0.3333333003, -0.4999999765,
)  # fmt: skip
"""(log(1 + f) - f) / f² where 1 + f is between the square roots of 1/2 and of 2."""
_ERF = (
    (
        1.9603810130774946e-08, -1.950902969838353e-06, 0.00014380973880179226, 0.0038078592624515295,
        0.050923313945531845, 0.20258331298828125, 1.1283791065216064,
    ),
    (0.0009798507671803236, 0.014575784094631672, 0.1160946786403656, 0.5128663182258606, 1.0),
    3.95,
)  # fmt: skip
"""erf(x) / x in x², as a quotient, up to the x where erf rounds to 1."""
_TANH = (
    (
        1.8162702244972628e-11, -1.2743922361835303e-08, 9.255164513888303e-06, 0.002919415244832635,
        0.12917974591255188, 0.9999999403953552,
    ),
    (0.00022791424999013543, 0.023757653310894966, 0.4625125825405121, 1.0),
    9.02,
)  # fmt: skip
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
"""Their sum is ln 2; the first has so few bits that its product with an exponent is exact."""

_PRODUCTS = 64
"""Powers up to which products are fewer operations than a logarithm and an exponential."""

_LIBRARY = "libmvec.so.1"
_NAMES = frozenset(
    [
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
        "log",
        "log10",
        "log1p",
        "log2",
        "pow",
        "sin",
        "sinh",
        "tan",
        "tanh",
    ]
)
_FORMS = {512: "e", 256: "d", 128: "b"}
"""The letter that x86's vector functions have for the bits of a vector: AVX-512, AVX2, SSE."""


@lru_cache(maxsize=1)
def vector_library() -> Any:
    """Load glibc's vector functions so that compiled code finds them; ``None`` where there are none."""
    try:
        return ctypes.CDLL(_LIBRARY, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None


def library_name(function: str, bits: int, element: str, lanes: int, operands: int) -> str:
    """Give the name of a function over vectors, by the calling convention of x86's vector functions."""
    return f"_ZGV{_FORMS[bits]}N{lanes}{'v' * operands}_{function}{'f' if element == 'f32' else ''}"


class Functions:
    """Writes a function of vectors."""

    def __init__(self, writer: Writer, *, module: Any, library: bool = True) -> None:
        """Write into ``module``.

        Args:
            writer: Writes the operations.
            module: Gets the declarations of what is called.
            library: Whether glibc's vector library may be called.
        """
        self._writer = writer
        self._module = module
        self._library = library
        self._declared: set[str] = set()
        self._written: dict[str, Callable[[Value], Value]] = {
            "math.exp": self._exp,
            "math.exp2": lambda x: self._exp(self._times(x, 0.6931471805599453)),
            "math.expm1": self._expm1,
            "math.log": self._log,
            "math.log2": lambda x: self._times(self._log(x), 1.4426950408889634),
            "math.log10": lambda x: self._times(self._log(x), 0.4342944819032518),
            "math.log1p": self._log1p,
            "math.erf": lambda x: self._quotient(x, *_ERF),
            "math.tanh": lambda x: self._quotient(x, *_TANH),
        }

    def write(self, name: str, operands: list[Value], width: int) -> Value:
        """Write the function called ``name``."""
        element = str(operands[0].type.element_type)
        if element == "f32" and name in self._written:
            return self._written[name](operands[0])
        called = self._callee(name, element, width, len(operands))
        if called is not None:
            return self._call(called, operands)
        return self._writer.op(name, [operands[0].type], operands)

    def power(self, x: Value, exponent: float) -> Value | None:
        """Write a power of a vector or a scalar as products and a root; ``None`` where that is no shorter way."""
        writer = self._writer
        whole, half = divmod(abs(exponent), 1)
        if exponent == 0 or half not in (0, 0.5) or whole > _PRODUCTS:
            return None
        factors = [writer.op("math.sqrt", [x.type], [x])] if half else []
        left, square = int(whole), x
        while left:
            if left & 1:
                factors.append(square)
            left >>= 1
            if left:
                square = writer.op("arith.mulf", [x.type], [square, square])
        result = factors[0]
        for factor in factors[1:]:
            result = writer.op("arith.mulf", [x.type], [result, factor])
        if exponent > 0:
            return result
        one = writer.constant(x.type.element_type if writer.is_vector(x) else x.type, 1)
        one = writer.splat(one, x.type.shape[0]) if writer.is_vector(x) else one
        return writer.op("arith.divf", [x.type], [one, result])

    # --- the library ---

    def _callee(self, name: str, element: str, width: int, operands: int) -> str | None:
        function = {"powf": "pow"}.get(name.removeprefix("math."), name.removeprefix("math."))
        bits = width * {"f32": 32, "f64": 64}.get(element, 0)
        if not self._library or function not in _NAMES or bits not in _FORMS:
            return None
        library = vector_library()
        symbol = library_name(function, bits, element, width, operands)
        return symbol if library is not None and hasattr(library, symbol) else None

    def _call(self, symbol: str, operands: list[Value]) -> Value:
        ir = self._writer.ir
        result = operands[0].type
        if symbol not in self._declared:
            self._declared.add(symbol)
            # a module as it was parsed or imported, or the operation found above one of its own
            body = self._module.operation.regions[0].blocks[0]
            known = [each.operation.attributes for each in body.operations]
            if not any("sym_name" in each and each["sym_name"].value == symbol for each in known):
                kind = ir.FunctionType.get([each.type for each in operands], [result])
                with ir.InsertionPoint.at_block_begin(body):
                    ir.Operation.create(
                        "func.func",
                        attributes={
                            "sym_name": ir.StringAttr.get(symbol),
                            "function_type": ir.TypeAttr.get(kind),
                            "sym_visibility": ir.StringAttr.get("private"),
                        },
                        regions=1,
                    )
        return self._writer.op("func.call", [result], operands, callee=ir.FlatSymbolRefAttr.get(symbol))

    # --- arithmetic ---

    def _number(self, like: Value, number: float) -> Value:
        writer, ir = self._writer, self._writer.ir
        element = like.type.element_type
        whole = str(element) == "i32"
        value = ir.IntegerAttr.get(element, int(number)) if whole else ir.FloatAttr.get(element, number)
        return writer.arith.constant(like.type, ir.DenseElementsAttr.get_splat(like.type, value))

    def _op(self, name: str, left: Value, right: Value) -> Value:
        return self._writer.op(f"arith.{name}", [left.type], [left, right])

    def _fma(self, a: Value, b: Value, c: Value) -> Value:
        return self._writer.op("math.fma", [a.type], [a, b, c])

    def _times(self, x: Value, factor: float) -> Value:
        return self._op("mulf", x, self._number(x, factor))

    def _polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        value = self._number(x, coefficients[0])
        for each in coefficients[1:]:
            value = self._fma(value, x, self._number(x, each))
        return value

    def _compare(self, predicate: int, left: Value, right: Value) -> Value:
        ir = self._writer.ir
        boolean = ir.VectorType.get(left.type.shape, ir.IntegerType.get_signless(1))
        number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), predicate)
        return self._writer.op("arith.cmpf", [boolean], [left, right], predicate=number)

    def _select(self, condition: Value, yes: Value, no: Value) -> Value:
        return self._writer.op("arith.select", [yes.type], [condition, yes, no])

    def _between(self, x: Value, low: float, high: float) -> Value:
        """Clamp; NaN stays NaN, and each side is one instruction where the processor has a minimum."""
        least, most = self._number(x, low), self._number(x, high)
        x = self._select(self._compare(_GREATER, x, most), most, x)
        return self._select(self._compare(_LESS, x, least), least, x)

    def _bits(self, x: Value) -> Value:
        ir = self._writer.ir
        return self._writer.op(
            "arith.bitcast", [ir.VectorType.get(x.type.shape, ir.IntegerType.get_signless(32))], [x]
        )

    def _from_bits(self, bits: Value) -> Value:
        ir = self._writer.ir
        return self._writer.op(
            "arith.bitcast", [ir.VectorType.get(bits.type.shape, ir.F32Type.get())], [bits]
        )

    # --- functions ---

    def _scaled(self, x: Value) -> tuple[Value, Value, Value]:
        """Write x as n ln 2 + r: give r, the float n, and the bits that hold n in their lowest places."""
        # added to 1.5 * 2^23 a float has no places behind the point: the sum rounds, and its low bits are n
        magic = self._number(x, 12582912.0)
        shifted = self._fma(x, self._number(x, 1.4426950408889634), magic)
        n = self._op("subf", shifted, magic)
        r = self._fma(n, self._number(x, -_LN2_HIGH), x)
        r = self._fma(n, self._number(x, -_LN2_LOW), r)
        return r, n, self._bits(shifted)

    def _power(self, bits: Value, bias: int) -> Value:
        """Give 2^(n + bias - 127)."""
        exponent = self._op("shli", bits, self._number(bits, 23))
        return self._from_bits(self._op("addi", exponent, self._number(bits, bias << 23)))

    def _exp(self, x: Value) -> Value:
        # twice the polynomial times 2^(n - 1), for 2^128 is no float; beyond 88.8 it overflows as it should,
        # and below -87.6 the scale is 0
        x = self._between(x, -87.6, 88.8)
        r, _, bits = self._scaled(x)
        doubled = self._polynomial(r, [*(2 * each for each in _EXP), 2.0, 2.0])
        return self._op("mulf", doubled, self._power(bits, 126))

    def _expm1(self, x: Value) -> Value:
        x = self._between(x, -87.6, 88.8)
        r, _, bits = self._scaled(x)
        rest = self._fma(self._polynomial(r, _EXP), self._op("mulf", r, r), r)
        half = self._power(bits, 126)
        # 2 (rest * 2^(n-1) + 2^(n-1) - 1/2): exact where n is 0
        sum_ = self._fma(rest, half, self._op("subf", half, self._number(x, 0.5)))
        return self._op("addf", sum_, sum_)

    def _log(self, x: Value) -> Value:
        ir = self._writer.ir
        small = self._compare(_LESS, x, self._number(x, 1.17549435e-38))
        lifted = self._select(small, self._times(x, 8388608.0), x)
        bits = self._bits(lifted)
        # counted from the square root of 1/2, so that what is left is as close to 1 as it can be
        exponent = self._op(
            "shrsi", self._op("subi", bits, self._number(bits, 0x3F3504F3)), self._number(bits, 23)
        )
        mantissa = self._from_bits(self._op("subi", bits, self._op("shli", exponent, self._number(bits, 23))))
        e = self._writer.op("arith.sitofp", [ir.VectorType.get(x.type.shape, ir.F32Type.get())], [exponent])
        e = self._select(small, self._op("subf", e, self._number(e, 23.0)), e)
        f = self._op("subf", mantissa, self._number(x, 1.0))
        square = self._op("mulf", f, f)
        rest = self._fma(self._polynomial(f, _LOG), square, self._times(e, _LN2_LOW))
        value = self._fma(e, self._number(x, _LN2_HIGH), self._op("addf", f, rest))
        infinite = self._number(x, float("inf"))
        value = self._select(self._compare(_EQUAL, x, infinite), infinite, value)
        zero = self._number(x, 0.0)
        other = self._select(
            self._compare(_EQUAL, x, zero), self._number(x, float("-inf")), self._number(x, float("nan"))
        )
        return self._select(self._compare(_GREATER, x, zero), value, other)

    def _log1p(self, x: Value) -> Value:
        one = self._number(x, 1.0)
        u = self._op("addf", one, x)
        # what rounding took from 1 + x, relative to it
        lost = self._op("divf", self._op("subf", x, self._op("subf", u, one)), u)
        finite = self._compare(_LESS, u, self._number(x, float("inf")))
        positive = self._compare(_GREATER, u, self._number(x, 0.0))
        both = self._op("andi", finite, positive)
        value = self._op("addf", self._log(u), self._select(both, lost, self._number(x, 0.0)))
        tiny = self._compare(_EQUAL, u, one)
        return self._select(tiny, x, value)

    def _quotient(self, x: Value, above: Sequence[float], below: Sequence[float], end: float) -> Value:
        """Give x P(x²) / Q(x²), which is 1 from ``end`` on."""
        x = self._between(x, -end, end)
        square = self._op("mulf", x, x)
        value = self._op("mulf", x, self._polynomial(square, above))
        value = self._op("divf", value, self._polynomial(square, below))
        return self._between(value, -1.0, 1.0)


_EQUAL, _GREATER, _LESS = 1, 2, 4
"""MLIR's numbers for the ordered comparisons of floats."""
