"""Arithmetic in a manifest, and the dtypes it may name: parsed by Python's own parser, never given to ``eval``.

The language: names, integers, floats, ``+ - * / // % **``, unary minus, comparisons, ``a if c else b``,
text in quotes (to compare a parameter with), and the functions of :data:`FUNCTIONS`. Numbers are bounded,
so that no expression can take long or much memory. What the names stand for is the caller's business.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelmark.errors import ManifestError
from kernelmark.text import listing, suggestion

__all__ = ["DTYPE_BYTES", "Expression", "ExpressionError", "Value", "constant", "parse", "unknown_dtype"]

Value = int | float | bool | str
"""What a name or an expression can stand for; dtypes are their names."""

_BY_BYTES = {
    1: "bool uint8 int8 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu",
    2: "float16 bfloat16 uint16 int16",
    4: "float32 uint32 int32",
    8: "float64 uint64 int64 complex64",
    16: "complex128",
}
DTYPE_BYTES = {name: size for size, names in _BY_BYTES.items() for name in names.split()}
"""Bytes of an element, by torch's name of its dtype without ``torch.``; here, so that nothing needs torch."""

_OTHER_WORDS = {
    **dict.fromkeys(("half", "fp16", "f16"), "float16"),
    **dict.fromkeys(("float", "fp32", "f32"), "float32"),
    **dict.fromkeys(("double", "fp64", "f64"), "float64"),
    "bf16": "bfloat16",
    "int": "int32",
    "long": "int64",
    "fp8": "float8_e4m3fn",
}

MAX_LENGTH = 500
MAX_DEPTH = 40
MAX_EXPONENT = 64
MAX_BITS = 128  # 3e38: past any count of operations or bytes, and quick to multiply


def unknown_dtype(name: str) -> str:
    """Say what to write instead of ``name``, which is no dtype."""
    plain = name.removeprefix("torch.")
    plain = _OTHER_WORDS.get(plain, plain)
    return f"write {plain!r}" if plain in DTYPE_BYTES else suggestion(name, DTYPE_BYTES, there_are="dtypes")


class ExpressionError(ManifestError):
    """An expression that is malformed, names something unknown, or has no value."""

    def __init__(self, text: str, column: int, problem: str) -> None:
        super().__init__(f"expression {text!r}, column {column}: {problem}")


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression. Build one with :func:`parse`.

    ``names`` are read as values, ``sized`` stand in ``sizeof(...)``, ``asked`` in ``present(...)``.
    """

    text: str
    names: tuple[str, ...]
    sized: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    _tree: ast.expr = field(default_factory=lambda: ast.Constant(0), repr=False, compare=False)

    def evaluate(self, values: Mapping[str, Value], present: Collection[str] = ()) -> Value:
        """Give the value.

        Args:
            values: What each name stands for; a dtype variable stands for a dtype's name.
            present: The inputs that ``present(...)`` is true of.

        Raises:
            ExpressionError: a name has no value, or the arithmetic has none (division by zero, too large).
        """
        return _Evaluation(self.text, values, present).of(self._tree)

    def error(self, name: str, problem: str) -> ExpressionError:
        """Give the error that says ``problem`` of ``name``, at the first column where that stands."""
        found = (n.col_offset + 1 for n in ast.walk(self._tree) if isinstance(n, ast.Name) and n.id == name)
        return ExpressionError(self.text, min(found, default=1), problem)


def parse(source: str | int | float) -> Expression:
    """Parse ``source``; a number stands for itself.

    Raises:
        ExpressionError: it is not in the language.
    """
    # One line, whatever YAML folded it from: columns count in what the messages show.
    text = " ".join(source.split()) if isinstance(source, str) else repr(source)
    if not text:
        raise ExpressionError(text, 1, "empty; write a number, a name, or arithmetic over them")
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"{text[:40]}...", MAX_LENGTH, f"longer than {MAX_LENGTH} characters")
    for column, character in enumerate(text, start=1):
        if not " " <= character <= "~":
            raise ExpressionError(text, column, "only printable ASCII may stand here")
    try:
        with warnings.catch_warnings():
            # '1if x else 2' and the like: Python warns today and will refuse; refuse now.
            warnings.simplefilter("error")
            tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(text, error.offset or len(text), f"not an expression ({error.msg})") from None
    except (ValueError, MemoryError, RecursionError) as error:
        raise ExpressionError(text, 1, f"not an expression ({error})") from None
    reader = _Reader(text)
    reader.read(tree, MAX_DEPTH)
    return Expression(text, tuple(reader.names), tuple(reader.sized), tuple(reader.asked), tree)


def constant(value: Value) -> Expression:
    """Give the expression that always has ``value``."""
    return Expression(repr(value), (), _tree=ast.Constant(value))


_BINARY: dict[type[ast.operator], Callable[[Any, Any], int | float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARISON: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_NUMERIC: dict[str, tuple[int, int, Callable[..., int | float]]] = {
    "ceil_div": (2, 2, lambda dividend, divisor: int(-(-dividend // divisor))),
    "log2": (1, 1, math.log2),
    "max": (2, 8, max),
    "min": (2, 8, min),
}
"""The fewest and the most arguments, and what is calculated of them."""
_OF_NAMES = {"present": "the name of an optional input", "sizeof": "a dtype or dtype variable"}
FUNCTIONS = (*_NUMERIC, *_OF_NAMES)
"""``sizeof(dtype)``: bytes of an element; ``present(input)``: whether the row gives that optional input."""


@dataclass(slots=True)
class _Walk:
    """One walk over the tree of ``text``, which errors show."""

    text: str

    def error(self, node: ast.expr, problem: str) -> ExpressionError:
        return ExpressionError(self.text, node.col_offset + 1, problem)

    def bounded(self, node: ast.expr, value: int | float) -> int | float:
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise self.error(
                node, f"the number has {value.bit_length()} bits; at most {MAX_BITS} are allowed"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise self.error(node, f"the number is {value}")
        return value


@dataclass(slots=True)
class _Reader(_Walk):
    """Refuses what is not in the language and notes the names."""

    names: dict[str, None] = field(default_factory=dict)
    sized: dict[str, None] = field(default_factory=dict)
    asked: dict[str, None] = field(default_factory=dict)

    def read(self, node: ast.expr, depth: int) -> None:
        if depth == 0:
            raise self.error(node, f"nested more than {MAX_DEPTH} deep")
        inside: list[ast.expr] = []
        match node:
            case ast.Constant(value=bool() | None):
                raise self.error(node, f"{node.value} is no number; compare with a parameter instead")
            case ast.Constant(value=str()):
                pass
            case ast.Constant(value=int() | float() as number):
                self.bounded(node, number)
            case ast.Name():
                self.names[node.id] = None
            case ast.UnaryOp(op=ast.USub()):
                inside = [node.operand]
            case ast.BinOp() if type(node.op) in _BINARY:
                inside = [node.left, node.right]
            case ast.Compare() if all(type(op) in _COMPARISON for op in node.ops):
                inside = [node.left, *node.comparators]
            case ast.IfExp():
                inside = [node.test, node.body, node.orelse]
            case ast.Call(func=ast.Name(id=name)):
                inside = self._arguments(node, name)
            case _:
                raise self.error(
                    node,
                    f"{ast.unparse(node)!r} is not in the language; there are names, numbers,"
                    f" + - * / // % **, comparisons, 'a if c else b' and {listing(FUNCTIONS)}",
                )
        for each in inside:
            self.read(each, depth - 1)

    def _arguments(self, node: ast.Call, name: str) -> list[ast.expr]:
        """Check the arguments of ``name``; give those that are expressions themselves."""
        if name not in FUNCTIONS:
            hint = suggestion(name, FUNCTIONS, there_are="functions")
            raise self.error(node, f"no function {name!r}; {hint}")
        low, high, _ = _NUMERIC.get(name, (1, 1, None))
        if node.keywords or not low <= len(node.args) <= high:
            wanted = f"{low}" if low == high else f"{low} to {high}"
            raise self.error(node, f"{name} takes {wanted} positional argument(s), not {ast.unparse(node)!r}")
        if name in _NUMERIC:
            return node.args
        argument = node.args[0]
        if not isinstance(argument, ast.Name):
            raise self.error(argument, f"{name} takes {_OF_NAMES[name]}, not {ast.unparse(argument)!r}")
        (self.sized if name == "sizeof" else self.asked)[argument.id] = None
        return []


@dataclass(slots=True)
class _Evaluation(_Walk):
    """Evaluates a tree that has been through :class:`_Reader`, so that only its kinds of node occur."""

    values: Mapping[str, Value]
    present: Collection[str]

    def of(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=int() | float() | str() as value):
                return value
            case ast.Name():
                return self._name(node)
            case ast.UnaryOp():
                return -self._number(node.operand)
            case ast.BinOp():
                return self._binary(node)
            case ast.Compare():
                return self._compare(node)
            case ast.IfExp():
                return self.of(node.body if self.of(node.test) else node.orelse)
            case ast.Call(func=ast.Name(id="present"), args=[ast.Name(id=name)]):
                return name in self.present
            case ast.Call(func=ast.Name(id="sizeof"), args=[argument]):
                return self._sizeof(argument)
            case ast.Call(func=ast.Name(id=name)):
                numbers = [self._number(argument) for argument in node.args]
                if name == "log2" and numbers[0] <= 0:
                    raise self.error(node.args[0], f"log2 of {numbers[0]}, which has none")
                return self._calculate(node, _NUMERIC[name][2], *numbers)
        raise self.error(node, "not in the language")

    def _name(self, node: ast.Name) -> Value:
        if node.id in self.values:
            return self.values[node.id]
        if node.id in DTYPE_BYTES:
            return node.id
        hint = suggestion(node.id, self.values, there_are="names with a value here")
        raise self.error(node, f"{node.id!r} has no value; {hint}")

    def _number(self, node: ast.expr) -> int | float:
        value = self.of(node)
        if isinstance(value, str):
            hint = "; its size in bytes is sizeof(...)" if value in DTYPE_BYTES else ""
            raise self.error(node, f"{ast.unparse(node)} is {value!r}, not a number{hint}")
        return value

    def _binary(self, node: ast.BinOp) -> int | float:
        left, right = self._number(node.left), self._number(node.right)
        if isinstance(node.op, ast.Pow):
            if abs(right) > MAX_EXPONENT:
                raise self.error(node.right, f"exponent {right} is outside -{MAX_EXPONENT} to {MAX_EXPONENT}")
            if left < 0 and right != int(right):
                raise self.error(node, f"{left} ** {right} is not a real number")
        return self._calculate(node, _BINARY[type(node.op)], left, right)

    def _calculate(
        self, node: ast.expr, function: Callable[..., int | float], *numbers: int | float
    ) -> int | float:
        try:
            result = function(*numbers)
        except ZeroDivisionError:
            raise self.error(node, f"division by zero in {ast.unparse(node)}") from None
        except (OverflowError, ValueError):
            raise self.error(node, "the result is too large for a float") from None
        return self.bounded(node, result)

    def _compare(self, node: ast.Compare) -> bool:
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            read = self.of if isinstance(op, ast.Eq | ast.NotEq) else self._number
            if not _COMPARISON[type(op)](read(left), read(right)):
                return False
            left = right
        return True

    def _sizeof(self, node: ast.expr) -> int:
        dtype = self.of(node)
        if isinstance(dtype, str) and dtype in DTYPE_BYTES:
            return DTYPE_BYTES[dtype]
        raise self.error(node, f"sizeof of {dtype!r}, which is no dtype; {unknown_dtype(str(dtype))}")
