"""Reads the parameters of ``solve(...)`` from C, C++ or CUDA source, with a parser and not with patterns.

What the parser cannot vouch for (a macro in the list, an unknown type, two different ``solve``) is an error
with its line. Nothing is preprocessed, and nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelmark.errors import UnavailableError, UsageError
from kernelmark.kernelfile.ctype import CType, find_type, supported_types
from kernelmark.kernelfile.request import Request

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["Parameter", "Signature", "parse_signature", "scalars_of", "signature_of"]

_MAX_ALIASES = 16
"""How far a chain of ``using`` is followed; a longer one goes in a circle."""

_TYPE_NODES = frozenset(
    {"primitive_type", "sized_type_specifier", "type_identifier", "qualified_identifier", "template_type"}
)
_QUALIFIERS = frozenset({"const", "volatile", "restrict", "__restrict__", "__restrict", "constexpr"})
_DECLARATORS = frozenset({"pointer_declarator", "array_declarator", "reference_declarator"})


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
    tree = _parser().parse(source.encode())
    reader = _Reader(path, _aliases(tree.root_node))
    found = [each for each in _functions(tree.root_node) if _name(each) == "solve"]
    linked = [each for each in found if plain_c or _is_extern_c(each)]
    if not linked:
        raise UsageError(_nothing_found(path, found))
    signatures = {reader.signature(each): each for each in linked}
    if len(signatures) > 1:
        lines = ", ".join(str(_line(each)) for each in signatures.values())
        raise UsageError(
            f"{path} declares several solve() that differ (lines {lines}); which one is compiled is up to the"
            " preprocessor: leave one"
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
    for each in signature.pointers:
        if each.name in request.values:
            raise UsageError(
                f"--{each.name}={request.values[each.name]}: {each.name} is a buffer of solve(); what it holds is"
                f" drawn from --seed, or given by shapes() of {request.ref.name}"
            )
    missing = [each.name for each in signature.scalars if each.name not in request.values]
    if missing:
        raise UsageError(
            f"solve() takes {', '.join(missing)}, which the command line does not give: add"
            f" {' '.join(f'--{name}=VALUE' for name in missing)}"
        )
    return {each.name: each.type.parse(request.values[each.name], each.name) for each in signature.scalars}


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
        _require_void(function, self)
        read = [self.parameter(c) for c in parameters.named_children if c.type != "comment"]
        found = tuple(each for each in read if each is not None)
        names = [each.name for each in found]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise self._error(parameters, f"names {', '.join(sorted(twice))} twice")
        return Signature(found)

    def parameter(self, node: Node) -> Parameter | None:
        if node.type not in ("parameter_declaration", "optional_parameter_declaration"):
            raise self._error(node, f"has {_text(node)!r}, which is no plain parameter")
        types = [c for c in node.children if c.type in _TYPE_NODES]
        declarator = node.child_by_field_name("declarator")
        if len(types) == 1 and declarator is None and _text(types[0]) == "void":
            return None
        if len(types) != 1 or declarator is None:
            raise self._error(node, f"has {_text(node)!r}: a parameter needs one type and a name")
        pointers, name = self._declared(declarator, node)
        ctype, const, aliased = self._type(_text(types[0]), node)
        pointers += aliased
        if pointers > 1:
            raise self._error(node, f"has {_text(node)!r}: a pointer to pointers cannot be filled")
        qualifiers = {_text(c) for c in node.children if c.type == "type_qualifier"}
        self._require_known(qualifiers, node)
        if not pointers and not ctype.by_value:
            raise self._error(
                node, f"has {_text(node)!r}, which cannot be handed over by value; take a float or a pointer"
            )
        return Parameter(
            name, ctype, bool(pointers), const=bool(pointers) and (const or "const" in qualifiers)
        )

    def _declared(self, declarator: Node, whole: Node) -> tuple[int, str]:
        """Unwrap pointers and arrays; give how many there are, and the name inside."""
        pointers, node = 0, declarator
        while node.type in _DECLARATORS:
            if node.type == "reference_declarator":
                raise self._error(
                    whole, f"has {_text(whole)!r}: C has no references; take a value or a pointer"
                )
            self._require_known({_text(c) for c in node.children if c.type == "type_qualifier"}, whole)
            pointers += 1
            inner = node.child_by_field_name("declarator")
            if inner is None:
                break
            node = inner
        if node.type != "identifier":
            raise self._error(whole, f"has {_text(whole)!r}, which is no value, pointer or array with a name")
        return pointers, _text(node)

    def _type(self, name: str, node: Node) -> tuple[CType, bool, int]:
        """Follow the file's own aliases; give the type, whether an alias made it const, and a pointer."""
        const, pointers = False, 0
        for _ in range(_MAX_ALIASES):
            ctype = find_type(name)
            if ctype is not None:
                return ctype, const, pointers
            if name not in self.aliases:
                break
            words = self.aliases[name].replace("*", " * ").split()
            const = const or "const" in words
            pointers += words.count("*")
            name = " ".join(word for word in words if word not in (*_QUALIFIERS, "*"))
        raise self._error(
            node, f"has {_text(node)!r} of a type that is not known; there are {supported_types()}"
        )

    def _require_known(self, qualifiers: set[str], node: Node) -> None:
        unknown = qualifiers - _QUALIFIERS
        if unknown:
            raise self._error(node, f"has {_text(node)!r} with the unknown qualifier {', '.join(unknown)}")

    def _error(self, node: Node, what: str) -> UsageError:
        return UsageError(f"{self.path}:{_line(node)}: solve() {what}")


# --- the tree ----------------------------------------------------------------------------------------


def _parser() -> Any:
    try:
        import tree_sitter_cuda
        from tree_sitter import Language, Parser
    except ImportError as error:
        raise UnavailableError(
            f"reading a C++ or CUDA signature needs tree-sitter and tree-sitter-cuda ({error});"
            " install kernelmark[kernelfile]"
        ) from error
    return Parser(Language(tree_sitter_cuda.language()))


def _functions(node: Node) -> Iterator[Node]:
    """Find the function declarators outside of function bodies and of ``#if 0``."""
    for child in node.children:
        if child.type == "function_declarator":
            yield child
        elif child.type == "preproc_if" and _is_zero(child):
            alternative = child.child_by_field_name("alternative")
            if alternative is not None:
                yield from _functions(alternative)
        elif child.type != "compound_statement":
            yield from _functions(child)


def _aliases(root: Node) -> dict[str, str]:
    found: dict[str, str] = {}
    nodes = [root]
    while nodes:
        node = nodes.pop()
        name = node.child_by_field_name("name" if node.type == "alias_declaration" else "declarator")
        kind = node.child_by_field_name("type")
        if node.type in ("alias_declaration", "type_definition") and name is not None and kind is not None:
            constant = " const" if any(_text(c) == "const" for c in node.children) else ""
            stars = _text(name).count("*")
            found[_text(name).replace("*", "").strip()] = f"{_text(kind)}{constant}{' *' * stars}"
        if node.type != "compound_statement":
            nodes.extend(node.children)
    return found


def _name(function: Node) -> str:
    declarator = function.child_by_field_name("declarator")
    return "" if declarator is None else _text(declarator)


def _is_extern_c(function: Node) -> bool:
    node = function.parent
    while node is not None:
        if node.type == "linkage_specification":
            value = node.child_by_field_name("value")
            return value is not None and _text(value) == '"C"'
        node = node.parent
    return False


def _require_void(function: Node, reader: _Reader) -> None:
    owner = function.parent
    if owner is not None and owner.type == "pointer_declarator":
        raise reader._error(function, "returns a pointer; it must return void")
    kind = None if owner is None else owner.child_by_field_name("type")
    if kind is None or _text(kind) != "void":
        told = "nothing that can be read" if kind is None else _text(kind)
        raise reader._error(function, f"returns {told}, perhaps a macro; write void right before its name")


def _is_zero(node: Node) -> bool:
    condition = node.child_by_field_name("condition")
    return condition is not None and _text(condition) in ("0", "false")


def _nothing_found(path: str, found: list[Node]) -> str:
    if found:
        return (
            f'{path}:{_line(found[0])}: solve() is not extern "C", so the library exports it under another'
            ' name; write extern "C" void solve(...)'
        )
    return f'{path} has no solve(); write extern "C" void solve(...) in it, outside of any macro'


def _text(node: Node) -> str:
    return "" if node.text is None else node.text.decode(errors="replace")


def _line(node: Node) -> int:
    return node.start_point[0] + 1
