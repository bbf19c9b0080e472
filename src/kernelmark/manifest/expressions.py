"""Arithmetic in a manifest: parsed by Python's own parser, evaluated by the rules below, never by ``eval``.

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

from kernelmark.errors import ManifestError
from kernelmark.manifest.dtypes import DTYPE_BYTES, unknown_dtype
from kernelmark.text.near import listing, suggestion

__all__ = ["FUNCTIONS", "Expression", "ExpressionError", "Value", "constant", "parse"]

Value = int | float | bool | str
"""What a name or an expression can stand for; dtypes are their names."""

MAX_LENGTH = 500
MAX_DEPTH = 40
MAX_EXPONENT = 64
MAX_BITS = 128  # 3e38: past any count of operations or bytes, and quick to multiply

FUNCTIONS = ("ceil_div", "log2", "max", "min", "present", "sizeof")
"""``sizeof(dtype)``: bytes of an element; ``present(input)``: whether the row gives that optional input."""


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

    def column_of(self, name: str) -> int:
        """Give the column, from 1, where ``name`` first stands."""
        found = (n.col_offset + 1 for n in ast.walk(self._tree) if isinstance(n, ast.Name) and n.id == name)
        return min(found, default=1)

    def error(self, name: str, problem: str) -> ExpressionError:
        """Give the error that says ``problem`` of ``name`` in this expression."""
        return ExpressionError(self.text, self.column_of(name), problem)


def parse(source: str | int | float) -> Expression:
    """Parse ``source``; a number stands for itself.

    Raises:
        ExpressionError: it is not in the language.
    """
    # One line, whatever YAML folded it from: columns count in what the messages show.
    text = " ".join(source.split()) if isinstance(source, str) else repr(source)
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"{text[:40]}...", MAX_LENGTH, f"longer than {MAX_LENGTH} characters")
    for column, character in enumerate(text, start=1):
        if not " " <= character <= "~":
            raise ExpressionError(text, column, "only printable ASCII may stand here")
    tree = _tree(text)
    reader = _Reader(text)
    reader.read(tree, MAX_DEPTH)
    return Expression(text, tuple(reader.names), tuple(reader.sized), tuple(reader.asked), tree)


def constant(value: Value) -> Expression:
    """Give the expression that always has ``value``."""
    return Expression(repr(value), (), _tree=ast.Constant(value))


def _tree(text: str) -> ast.expr:
    if not text:
        raise ExpressionError(text, 1, "empty; write a number, a name, or arithmetic over them")
    try:
        with warnings.catch_warnings():
            # '1if x else 2' and the like: Python warns today and will refuse; refuse now.
            warnings.simplefilter("error")
            return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(text, error.offset or len(text), f"not an expression ({error.msg})") from None
    except (ValueError, MemoryError, RecursionError) as error:
        raise ExpressionError(text, 1, f"not an expression ({error})") from None


_BINARY: dict[type[ast.operator], Callable[[int | float, int | float], int | float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_EQUALITY: dict[type[ast.cmpop], Callable[[Value, Value], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ORDER: dict[type[ast.cmpop], Callable[[int | float, int | float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ARITY = {
    "ceil_div": (2, 2),
    "log2": (1, 1),
    "max": (2, 8),
    "min": (2, 8),
    "present": (1, 1),
    "sizeof": (1, 1),
}


class _Reader:
    """Walks a tree once: refuses what is not in the language and notes the names."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: dict[str, None] = {}
        self.sized: dict[str, None] = {}
        self.asked: dict[str, None] = {}

    def read(self, node: ast.expr, depth: int) -> None:
        if depth == 0:
            raise self._error(node, f"nested more than {MAX_DEPTH} deep")
        match node:
            case ast.Constant(value=bool() | None):
                raise self._error(node, f"{node.value} is no number; compare with a parameter instead")
            case ast.Constant(value=str()):
                pass
            case ast.Constant(value=int() | float() as number):
                _bounded(number, lambda problem: self._error(node, problem))
            case ast.Name():
                self.names[node.id] = None
            case ast.UnaryOp(op=ast.USub()):
                self.read(node.operand, depth - 1)
            case ast.BinOp() if type(node.op) in _BINARY:
                self._all((node.left, node.right), depth)
            case ast.Compare() if all(type(op) in _EQUALITY or type(op) in _ORDER for op in node.ops):
                self._all((node.left, *node.comparators), depth)
            case ast.IfExp():
                self._all((node.test, node.body, node.orelse), depth)
            case ast.Call(func=ast.Name(id=name)):
                self._call(node, name, depth)
            case _:
                raise self._error(
                    node,
                    f"{ast.unparse(node)!r} is not in the language; there are names, numbers,"
                    f" + - * / // % **, comparisons, 'a if c else b' and {listing(FUNCTIONS)}",
                )

    def _all(self, nodes: tuple[ast.expr, ...], depth: int) -> None:
        for node in nodes:
            self.read(node, depth - 1)

    def _call(self, node: ast.Call, name: str, depth: int) -> None:
        if name not in _ARITY:
            raise self._error(
                node, f"no function {name!r}; {suggestion(name, FUNCTIONS, there_are='functions')}"
            )
        low, high = _ARITY[name]
        if node.keywords or not low <= len(node.args) <= high:
            wanted = f"{low}" if low == high else f"{low} to {high}"
            raise self._error(
                node, f"{name} takes {wanted} positional argument(s), not {ast.unparse(node)!r}"
            )
        if name in ("sizeof", "present"):
            argument = node.args[0]
            if not isinstance(argument, ast.Name):
                of = "a dtype or dtype variable" if name == "sizeof" else "the name of an optional input"
                raise self._error(argument, f"{name} takes {of}, not {ast.unparse(argument)!r}")
            (self.sized if name == "sizeof" else self.asked)[argument.id] = None
            return
        self._all(tuple(node.args), depth)

    def _error(self, node: ast.expr, problem: str) -> ExpressionError:
        return ExpressionError(self.text, node.col_offset + 1, problem)


@dataclass(slots=True)
class _Evaluation:
    """One evaluation; the tree has been through :class:`_Reader`, so only its kinds of node occur."""

    text: str
    values: Mapping[str, Value]
    present: Collection[str]

    def of(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant():
                return node.value  # pyright: ignore[reportReturnType] - the reader let numbers and text through
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
            case ast.Call(func=ast.Name(id=name)):
                return self._call(node, name)
        raise self._error(node, "not in the language")

    def _name(self, node: ast.Name) -> Value:
        if node.id in self.values:
            return self.values[node.id]
        if node.id in DTYPE_BYTES:
            return node.id
        hint = suggestion(node.id, self.values, there_are="names with a value here")
        raise self._error(node, f"{node.id!r} has no value; {hint}")

    def _number(self, node: ast.expr) -> int | float:
        value = self.of(node)
        if isinstance(value, str):
            hint = "; its size in bytes is sizeof(...)" if value in DTYPE_BYTES else ""
            raise self._error(node, f"{ast.unparse(node)} is {value!r}, not a number{hint}")
        return value

    def _binary(self, node: ast.BinOp) -> int | float:
        left, right = self._number(node.left), self._number(node.right)
        if isinstance(node.op, ast.Pow) and abs(right) > MAX_EXPONENT:
            raise self._error(node.right, f"exponent {right} is outside -{MAX_EXPONENT} to {MAX_EXPONENT}")
        try:
            result = _BINARY[type(node.op)](left, right)
        except ZeroDivisionError:
            raise self._error(node, f"division by zero in {ast.unparse(node)}") from None
        except OverflowError:
            raise self._error(node, "the result is too large for a float") from None
        if isinstance(result, complex):
            raise self._error(node, f"{left} ** {right} is not a real number")
        return self._bounded(node, result)

    def _compare(self, node: ast.Compare) -> bool:
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            if type(op) in _EQUALITY:
                holds = _EQUALITY[type(op)](self.of(left), self.of(right))
            else:
                holds = _ORDER[type(op)](self._number(left), self._number(right))
            if not holds:
                return False
            left = right
        return True

    def _call(self, node: ast.Call, name: str) -> Value:
        if name == "present":
            return node.args[0].id in self.present  # pyright: ignore[reportAttributeAccessIssue] - a name, see reader
        if name == "sizeof":
            return self._sizeof(node.args[0])
        numbers = [self._number(argument) for argument in node.args]
        if name == "ceil_div":
            return self._ceil_div(node, *numbers)
        if name == "log2":
            if numbers[0] <= 0:
                raise self._error(node.args[0], f"log2 of {numbers[0]}, which has none")
            return math.log2(numbers[0])
        return min(numbers) if name == "min" else max(numbers)

    def _ceil_div(self, node: ast.Call, dividend: int | float, divisor: int | float) -> int | float:
        try:
            return self._bounded(node, int(-(-dividend // divisor)))
        except ZeroDivisionError:
            raise self._error(node, f"division by zero in {ast.unparse(node)}") from None
        except (OverflowError, ValueError):
            raise self._error(node, "the result is too large") from None

    def _sizeof(self, node: ast.expr) -> int:
        dtype = self.of(node)
        if isinstance(dtype, str) and dtype in DTYPE_BYTES:
            return DTYPE_BYTES[dtype]
        raise self._error(node, f"sizeof of {dtype!r}, which is no dtype; {unknown_dtype(str(dtype))}")

    def _bounded(self, node: ast.expr, value: int | float) -> int | float:
        return _bounded(value, lambda problem: self._error(node, problem))

    def _error(self, node: ast.expr, problem: str) -> ExpressionError:
        return ExpressionError(self.text, node.col_offset + 1, problem)


def _bounded(value: int | float, error: Callable[[str], ExpressionError]) -> int | float:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise error(f"the number has {value.bit_length()} bits; at most {MAX_BITS} are allowed")
    if isinstance(value, float) and not math.isfinite(value):
        raise error(f"the number is {value}")
    return value
