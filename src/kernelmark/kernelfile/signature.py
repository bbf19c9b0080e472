"""Reads the parameters of ``solve(...)`` from C, C++ or CUDA source, with a parser and not with patterns.

What the parser cannot vouch for (a macro in the list, an unknown type, two different ``solve``) is an error
with its line. Nothing is preprocessed, and nothing is compiled.
"""

from __future__ import annotations

import ctypes
import math
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kernelmark.errors import UnavailableError, UsageError
from kernelmark.kernelfile.request import Request

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = [
    "CType",
    "Parameter",
    "Signature",
    "find_type",
    "number",
    "parse_signature",
    "scalars_of",
    "signature_of",
]


# --- types ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CType:
    """One element type."""

    dtype: str
    """Torch's name, without ``torch.``."""
    kind: Literal["float", "int", "uint", "bool"]
    bits: int
    by_value: bool = True
    """Whether a scalar of it can be handed to C."""

    def parse(self, text: str, name: str) -> int | float | bool:
        """Read a scalar from a command line.

        Raises:
            UsageError: it is no such number, or out of range.
        """
        value, start = number(text), f"--{name}={text}: {name} is a {self.dtype}"
        if self.kind == "bool":
            if value not in (0, 1):
                raise UsageError(f"{start}; give true, false, 1 or 0")
            return bool(value)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise UsageError(f"{start}; give a number")
        if self.kind == "float":
            largest = _LARGEST[self.dtype]
            if math.isfinite(value) and abs(value) > largest:
                raise UsageError(f"{start}, up to {largest:g}")
            return float(value)
        if isinstance(value, float) and not value.is_integer():
            raise UsageError(f"{start}; give a whole number")
        signed = self.kind == "int"
        low, high = -(2 ** (self.bits - 1)) if signed else 0, 2 ** (self.bits - signed) - 1
        if not low <= value <= high:
            raise UsageError(f"{start}, from {low} to {high}")
        return int(value)

    def pass_by_value(self, value: Any) -> Any:
        """Wrap ``value`` as ctypes hands it to C."""
        if self.kind == "float":
            if self.bits == 16:
                return _Half(_half_bits(value, self.dtype))
            return (ctypes.c_float if self.bits == 32 else ctypes.c_double)(value)
        return getattr(ctypes, "c_bool" if self.kind == "bool" else f"c_{self.kind}{self.bits}")(value)


def number(text: str) -> int | float | bool | str:
    """Read what a command line gives: a whole number (``2^10`` too), a number, true or false, else text."""
    if power := re.fullmatch(r"(-?\d+)\^(\d{1,3})", text):
        return int(power[1]) ** int(power[2])
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for read in (lambda: int(text, 0), lambda: int(text), lambda: float(text)):
        with suppress(ValueError):
            return read()
    return text


def find_type(name: str) -> CType | None:
    """Give the type that C calls ``name``, without qualifiers; ``None`` for one that is not supported."""
    return _TYPES.get(_plain(name))


class _Half(ctypes.Structure):
    """A 16-bit float by value: a struct of 16 bits, as CUDA's and CUTLASS's own types are."""

    _fields_ = (("bits", ctypes.c_uint16),)


def _half_bits(value: float, dtype: str) -> int:
    if dtype == "float16":
        return int.from_bytes(struct.pack("<e", value), "little")
    word = int.from_bytes(struct.pack("<f", value), "little")
    if math.isnan(value):
        return (word >> 16) | 0x40
    # round to nearest, ties to even, as the hardware's conversion does
    return (word + 0x7FFF + ((word >> 16) & 1)) >> 16 & 0xFFFF


def _plain(name: str) -> str:
    words = re.sub(r"\s*::\s*", "::", name).split()
    if words and all(word in _WORDS for word in words):
        return " ".join(sorted(word for word in words if word != "int" or len(words) == 1))
    return " ".join(words).removeprefix("::").removeprefix("std::")


_WORDS = frozenset({"signed", "unsigned", "char", "short", "int", "long", "float", "double", "bool"})
_LARGEST = {"float16": 65504.0, "bfloat16": 3.3895e38, "float32": 3.4028235e38, "float64": math.inf}
_LONG = 8 * ctypes.sizeof(ctypes.c_long)
_NAMES: tuple[tuple[CType, str], ...] = (
    (CType("float32", "float", 32), "float, float32_t"),
    (CType("float64", "float", 64), "double, float64_t"),
    (CType("float16", "float", 16), "half, __half, half_t, cutlass::half_t, at::Half, c10::Half"),
    (
        CType("bfloat16", "float", 16),
        "__nv_bfloat16, nv_bfloat16, bfloat16, bfloat16_t, cutlass::bfloat16_t, at::BFloat16, c10::BFloat16",
    ),
    # the compilers' own 16-bit types travel in vector registers, which ctypes cannot fill
    (CType("float16", "float", 16, by_value=False), "_Float16, __fp16"),
    (CType("bfloat16", "float", 16, by_value=False), "__bf16"),
    (CType("int8", "int", 8), "int8_t, char, signed char, __int8_t"),
    (CType("int16", "int", 16), "int16_t, short, signed short"),
    (CType("int32", "int", 32), "int32_t, int, signed, signed int"),
    (CType("int64", "int", 64), "int64_t, long long, signed long long, ptrdiff_t, ssize_t"),
    (CType("uint8", "uint", 8), "uint8_t, unsigned char"),
    (CType("uint16", "uint", 16), "uint16_t, unsigned short"),
    (CType("uint32", "uint", 32), "uint32_t, unsigned, unsigned int, uint"),
    (CType("uint64", "uint", 64), "uint64_t, unsigned long long, size_t"),
    (CType("bool", "bool", 8), "bool, _Bool"),
    (CType(f"int{_LONG}", "int", _LONG), "long, signed long"),
    (CType(f"uint{_LONG}", "uint", _LONG), "unsigned long, ulong"),
)
_TYPES = {_plain(name): ctype for ctype, names in _NAMES for name in names.split(", ")}


# --- the signature -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of ``solve``."""

    name: str
    type: CType
    pointer: bool
    const: bool = False
    """Whether what a pointer points to is read only."""

    @property
    def is_output(self) -> bool:
        """Whether the solution writes it: a pointer to something that is not ``const``."""
        return self.pointer and not self.const


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters, in order."""

    parameters: tuple[Parameter, ...]

    @property
    def pointers(self) -> tuple[Parameter, ...]:
        """The buffers."""
        return tuple(each for each in self.parameters if each.pointer)

    @property
    def scalars(self) -> tuple[Parameter, ...]:
        """What is given by value."""
        return tuple(each for each in self.parameters if not each.pointer)

    @property
    def outputs(self) -> tuple[Parameter, ...]:
        """The buffers that the solution writes."""
        return tuple(each for each in self.parameters if each.is_output)


def parse_signature(source: str, path: str, *, plain_c: bool = False) -> Signature:
    """Read the signature of ``solve`` from ``source``.

    Args:
        source: The text of the file.
        path: Its name, for messages.
        plain_c: Whether it is C, where ``solve`` needs no ``extern "C"``.

    Raises:
        UnavailableError: the parser is not installed.
        UsageError: there is no ``solve``, or several that differ, or one whose parameters cannot be told.
    """
    try:
        import tree_sitter_cuda
        from tree_sitter import Language, Parser
    except ImportError as error:
        raise UnavailableError(
            f"reading a C++ or CUDA signature needs tree-sitter and tree-sitter-cuda ({error});"
            " install kernelmark[kernelfile]"
        ) from error
    root = Parser(Language(tree_sitter_cuda.language())).parse(source.encode()).root_node
    found = [each for each in _functions(root) if _text(each.child_by_field_name("declarator")) == "solve"]
    linked = [each for each in found if plain_c or _is_extern_c(each)]
    if found and not linked:
        raise UsageError(
            f'{path}:{_line(found[0])}: solve() is not extern "C", so the library exports it under another'
            ' name; write extern "C" void solve(...)'
        )
    if not found:
        raise UsageError(
            f'{path} has no solve(); write extern "C" void solve(...) in it, outside of any macro'
        )
    reader = _Reader(path, _aliases(root))
    signatures = {reader.signature(each): _line(each) for each in linked}
    if len(signatures) > 1:
        raise UsageError(
            f"{path} declares several solve() that differ (lines {', '.join(map(str, signatures.values()))});"
            " which one is compiled is up to the preprocessor: leave one"
        )
    (signature,) = signatures
    if not signature.outputs:
        raise UsageError(
            f"{path}: every pointer of solve() is const, so it has no output and nothing could be compared;"
            " take const off the buffers that it writes"
        )
    return signature


def signature_of(request: Request) -> Signature:
    """Parse the signature of the request's source."""
    source = request.solution.read_text(encoding="utf-8", errors="replace")
    return parse_signature(source, str(request.solution), plain_c=request.solution.suffix == ".c")


def scalars_of(request: Request, signature: Signature) -> dict[str, Any]:
    """Read the scalars of ``solve`` from the command line's values.

    Raises:
        UsageError: one is missing, of another type, or out of range, or a buffer is given a value.
    """
    values = request.values
    for name in (each.name for each in signature.pointers if each.name in values):
        raise UsageError(
            f"--{name}={values[name]}: {name} is a buffer of solve(); what it holds is drawn from --seed, or given"
            f" by shapes() of {request.ref.name}"
        )
    missing = [each.name for each in signature.scalars if each.name not in values]
    if missing:
        raise UsageError(
            f"solve() takes {', '.join(missing)}, which the command line does not give: add"
            f" {' '.join(f'--{name}=VALUE' for name in missing)}"
        )
    return {each.name: each.type.parse(values[each.name], each.name) for each in signature.scalars}


_MAX_ALIASES = 16
"""How far a chain of ``using`` is followed; a longer one goes in a circle."""
_TYPE_NODES = frozenset(
    {"primitive_type", "sized_type_specifier", "type_identifier", "qualified_identifier", "template_type"}
)
_QUALIFIERS = frozenset({"const", "volatile", "restrict", "__restrict__", "__restrict", "constexpr"})
_DECLARATORS = frozenset({"pointer_declarator", "array_declarator", "reference_declarator"})


@dataclass(frozen=True, slots=True)
class _Reader:
    """Turns parameter nodes into parameters; knows the file's own names for types."""

    path: str
    aliases: dict[str, str]

    def signature(self, function: Node) -> Signature:
        parameters = function.child_by_field_name("parameters")
        assert parameters is not None  # the grammar has no function declarator without them
        if parameters.has_error or any(c.type.startswith("preproc") for c in parameters.children):
            raise self._error(
                parameters, f"cannot be read: {_text(parameters)!r} holds a macro or something else unknown"
            )
        if any(c.type in ("...", "variadic_parameter_declaration") for c in parameters.children):
            raise self._error(parameters, "takes a variable number of arguments; name every one")
        owner = function.parent
        if owner is not None and owner.type == "pointer_declarator":
            raise self._error(function, "returns a pointer; it must return void")
        told = _text(None if owner is None else owner.child_by_field_name("type"))
        if told != "void":
            told = told or "nothing that can be read"
            raise self._error(function, f"returns {told}, perhaps a macro; write void right before its name")
        read = [self._parameter(c) for c in parameters.named_children if c.type != "comment"]
        found = tuple(each for each in read if each is not None)
        names = [each.name for each in found]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise self._error(parameters, f"names {', '.join(twice)} twice")
        return Signature(found)

    def _parameter(self, node: Node) -> Parameter | None:
        has = f"has {_text(node)!r}"
        if node.type not in ("parameter_declaration", "optional_parameter_declaration"):
            raise self._error(node, f"{has}, which is no plain parameter")
        types = [_text(c) for c in node.children if c.type in _TYPE_NODES]
        declarator = node.child_by_field_name("declarator")
        if types == ["void"] and declarator is None:
            return None
        if len(types) != 1 or declarator is None:
            raise self._error(node, f"{has}: a parameter needs one type and a name")
        pointers = 0
        qualifiers = _qualifiers(node)
        const, others = "const" in qualifiers, set(qualifiers)
        while declarator.type in _DECLARATORS:
            if declarator.type == "reference_declarator":
                raise self._error(node, f"{has}: C has no references; take a value or a pointer")
            others |= _qualifiers(declarator)
            pointers += 1
            inner = declarator.child_by_field_name("declarator")
            if inner is None:
                break
            declarator = inner
        if unknown := others - _QUALIFIERS:
            raise self._error(node, f"{has} with the unknown qualifier {', '.join(unknown)}")
        if declarator.type != "identifier":
            raise self._error(node, f"{has}, which is no value, pointer or array with a name")
        ctype, aliases = self._type(types[0], node)
        pointers += aliases.count("*")
        if pointers > 1:
            raise self._error(node, f"{has}: a pointer to pointers cannot be filled")
        if not pointers and not ctype.by_value:
            raise self._error(node, f"{has}, which cannot be handed over by value; take a float or a pointer")
        const = bool(pointers) and (const or "const" in aliases)
        return Parameter(_text(declarator), ctype, bool(pointers), const=const)

    def _type(self, name: str, node: Node) -> tuple[CType, list[str]]:
        """Follow the file's own aliases; give the type, and the words of all aliases on the way."""
        words: list[str] = []
        for _ in range(_MAX_ALIASES):
            if (ctype := find_type(name)) is not None:
                return ctype, words
            if name not in self.aliases:
                break
            here = self.aliases[name].replace("*", " * ").split()
            words += here
            name = " ".join(word for word in here if word not in (*_QUALIFIERS, "*"))
        raise self._error(
            node,
            f"has {_text(node)!r} of a type that is not known; there are float, double, half (__half), bfloat16"
            " (__nv_bfloat16), bool, and signed and unsigned integers of 8 to 64 bits",
        )

    def _error(self, node: Node, what: str) -> UsageError:
        return UsageError(f"{self.path}:{_line(node)}: solve() {what}")


def _functions(node: Node) -> Iterator[Node]:
    """Find the function declarators outside of function bodies and of ``#if 0``."""
    for child in node.children:
        if child.type == "function_declarator":
            yield child
        elif child.type == "preproc_if" and _text(child.child_by_field_name("condition")) in ("0", "false"):
            if (alternative := child.child_by_field_name("alternative")) is not None:
                yield from _functions(alternative)
        elif child.type != "compound_statement":
            yield from _functions(child)


def _aliases(root: Node) -> dict[str, str]:
    found: dict[str, str] = {}
    nodes = [root]
    while nodes:
        node = nodes.pop()
        name = _text(node.child_by_field_name("name" if node.type == "alias_declaration" else "declarator"))
        kind = _text(node.child_by_field_name("type"))
        if node.type in ("alias_declaration", "type_definition") and name and kind:
            constant = " const" if any(_text(c) == "const" for c in node.children) else ""
            found[name.replace("*", "").strip()] = f"{kind}{constant}{' *' * name.count('*')}"
        if node.type != "compound_statement":
            nodes.extend(node.children)
    return found


def _is_extern_c(function: Node) -> bool:
    node = function.parent
    while node is not None and node.type != "linkage_specification":
        node = node.parent
    return node is not None and _text(node.child_by_field_name("value")) == '"C"'


def _qualifiers(node: Node) -> set[str]:
    return {_text(c) for c in node.children if c.type == "type_qualifier"}


def _text(node: Node | None) -> str:
    return "" if node is None or node.text is None else node.text.decode(errors="replace")


def _line(node: Node) -> int:
    return node.start_point[0] + 1
