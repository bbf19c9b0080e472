"""YAML text as plain values, each of which knows its line.

Reads the core schema of YAML 1.2: ``yes``, ``on`` and ``1:30`` are text, ``1e-5`` is a number. Refuses
what a project's files have no use for: tabs in the indentation, duplicate keys, keys that are not text, cycles,
tags, several documents. Knows nothing of what the fields mean; a :class:`FileKind` says what the file is called
and which error is raised.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kernelmark.errors import FileError, ManifestError

__all__ = ["MANIFEST", "FileKind", "Place", "Source", "kind_of", "parse_source", "read_source"]

MAX_DEPTH = 30  # a manifest's deepest field is 8 down
_PREFIX = "tag:yaml.org,2002:"
_NULL, _BOOL, _INT, _FLOAT, _STR = (_PREFIX + kind for kind in ("null", "bool", "int", "float", "str"))
_PATTERNS: dict[str, tuple[re.Pattern[str], list[str]]] = {
    _NULL: (re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""]),
    _BOOL: (re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), list("tTfF")),
    _INT: (re.compile(r"[-+]?(?:0|[1-9][0-9]{0,99})\Z"), list("-+0123456789")),
    _FLOAT: (
        re.compile(r"[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)\Z"),
        list("-+.0123456789"),
    ),
}
_KINDS = {bool: "a bool", int: "an int", float: "a float", str: "text", dict: "a mapping", list: "a list"}


# libyaml is ten times as fast; a PyYAML built without it has no CSafeLoader.
_Base: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):
    """Composes nodes, with the core schema's reading of plain scalars."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own layout


for _tag, (_pattern, _first) in _PATTERNS.items():
    _Loader.add_implicit_resolver(_tag, _pattern, _first)


@dataclass(frozen=True, slots=True)
class FileKind:
    """What a file is, for what is said of it."""

    noun: str
    """What it is called, such as ``a manifest``."""
    needs: str
    """What must stand in it, such as ``'family' and 'ops'``."""
    error: type[FileError]


MANIFEST = FileKind("a manifest", "'family' and 'ops'", ManifestError)


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is written: what an error about it begins with."""

    path: str
    line: int
    field: str
    kind: FileKind = MANIFEST

    def error(self, message: str) -> Any:  # of the class that the kind names
        """Give the error that says ``message`` of this place."""
        return self.kind.error(message, path=self.path, line=self.line, field=self.field)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.field}" if self.field else f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Source:
    """One YAML file: its value, and the line of each field."""

    path: str
    value: Any
    _root: yaml.Node = field(repr=False)
    kind: FileKind = MANIFEST

    def place(self, loc: Sequence[object] = ()) -> Place:
        """Give the place of the field at ``loc``; of the nearest field above it, where there is none."""
        node, line, names = self._root, 1, []
        for part in loc:
            step = _step(node, part)
            names.append(str(part))
            if step is not None:
                node, line = step
        return Place(self.path, line, ".".join(names), self.kind)

    def error(self, message: str, *loc: object) -> Any:  # of the class that the kind names
        """Give the error that says ``message`` of the field at ``loc``."""
        return self.place(loc).error(message)


def kind_of(value: object) -> str:
    """Name the kind of a YAML value: ``text``, ``a mapping``, ``nothing``, ..."""
    return "nothing" if value is None else _KINDS.get(type(value), type(value).__name__)


def read_source(path: Path, *, kind: FileKind = MANIFEST) -> Source:
    """Read one file.

    Raises:
        FileError: it cannot be read, or is not YAML as such a file wants it; of the class that ``kind`` names.
    """
    reader = _Reader(str(path), kind)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise reader.error(f"cannot be read: {error.strerror}; check its permissions") from error
    try:
        return reader.source(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise reader.error(
            f"byte {data[error.start]:#04x} is not UTF-8; save the file as UTF-8", line
        ) from error


def parse_source(text: str, path: str, *, kind: FileKind = MANIFEST) -> Source:
    """Parse the text of one file.

    Raises:
        FileError: it is not YAML as such a file wants it; of the class that ``kind`` names.
    """
    return _Reader(path, kind).source(text)


def _step(node: yaml.Node, part: object) -> tuple[yaml.Node, int] | None:
    """Go one field down; the line is that of the key, where a reader looks first."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == part:
                return value, key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part].start_mark.line + 1
    return None


class _Reader:
    """Turns one file's text into nodes and those into values; a node that an alias repeats is built once."""

    def __init__(self, path: str, kind: FileKind) -> None:
        self._path, self._kind = path, kind
        self._open: set[int] = set()
        self._done: dict[int, Any] = {}

    def error(self, message: str, line: int | None = None, loc: Sequence[object] = ()) -> FileError:
        field = ".".join(map(str, loc)) or None
        return self._kind.error(message, path=self._path, line=line, field=field)

    def source(self, text: str) -> Source:
        self._refuse_characters(text)
        root = self._compose(text)
        if root is None:
            raise self.error(f"the file is empty; {self._kind.noun} needs {self._kind.needs}", 1)
        return Source(self._path, self._value(root, ()), root, self._kind)

    def _refuse_characters(self, text: str) -> None:
        """Refuse what PyYAML would refuse without a line, and the tabs that it would refuse in riddles."""
        for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
            indent = line[: len(line) - len(line.lstrip(" \t"))]
            if "\t" in indent and line.strip():
                raise self.error("a tab in the indentation; YAML indents with spaces", number)
            if bad := yaml.reader.Reader.NON_PRINTABLE.search(line):
                raise self.error(f"character {bad.group()!r} may not stand in YAML", number)

    def _compose(self, text: str) -> yaml.Node | None:
        try:
            return yaml.compose(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            what = ": ".join(part for part in (error.context, error.problem) if part)
            column = f" at column {mark.column + 1}" if mark else ""
            raise self.error(f"not YAML: {what}{column}", mark.line + 1 if mark else None) from error
        except yaml.YAMLError as error:
            raise self.error(f"not YAML: {error}") from error
        except RecursionError as error:
            raise self.error(f"nested more than {MAX_DEPTH} deep") from error

    def _value(self, node: yaml.Node, loc: tuple[object, ...]) -> Any:
        if id(node) in self._done:
            return self._done[id(node)]
        if id(node) in self._open:
            raise self._at(node, loc, "an alias to the collection that it stands in; it would never end")
        if len(loc) > MAX_DEPTH:
            raise self._at(node, loc[:8], f"nested more than {MAX_DEPTH} deep")
        self._open.add(id(node))
        if isinstance(node, yaml.MappingNode) and node.tag == _PREFIX + "map":
            value: Any = self._mapping(node, loc)
        elif isinstance(node, yaml.SequenceNode) and node.tag == _PREFIX + "seq":
            value = [self._value(item, (*loc, i)) for i, item in enumerate(node.value)]
        elif isinstance(node, yaml.ScalarNode) and node.tag in (_STR, *_PATTERNS):
            value = self._scalar(node, loc)
        else:
            tag = node.tag.replace(_PREFIX, "!!")
            raise self._at(node, loc, f"tag {tag!r}; {self._kind.noun} holds plain values only")
        self._open.discard(id(node))
        self._done[id(node)] = value
        return value

    def _mapping(self, node: yaml.MappingNode, loc: tuple[object, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._at(key, loc, "a list or mapping as a key; keys are text")
            name = key.value
            if key.tag != _STR:
                kind = kind_of(self._scalar(key, loc))
                raise self._at(key, loc, f"key {name} is {kind} in YAML; quote it: {name!r}")
            if name in result:
                first = f"first on line {lines[name]}"
                raise self._at(key, (*loc, name), f"duplicate key {name!r}, {first}; keep one of them")
            lines[name] = key.start_mark.line + 1
            result[name] = self._value(value, (*loc, name))
        return result

    def _scalar(self, node: yaml.ScalarNode, loc: tuple[object, ...]) -> Any:
        text = node.value
        if node.tag == _STR:
            return text
        if not _PATTERNS[node.tag][0].match(text):
            tag = node.tag.replace(_PREFIX, "!!")
            raise self._at(node, loc, f"{text!r} is not written as {tag} wants it")
        if node.tag == _NULL:
            return None
        if node.tag == _BOOL:
            return text.lower() == "true"
        if node.tag == _INT:
            return int(text)
        value = float(text)
        if not math.isfinite(value):
            raise self._at(node, loc, f"{text} is too large for a float")
        return value

    def _at(self, node: yaml.Node, loc: tuple[object, ...], message: str) -> FileError:
        return self.error(message, node.start_mark.line + 1, loc)
