"""Errors as values that cross from one process to another: the class and its fields arrive, not a message alone.

Nothing is unpickled, and no constructor of a worker's choosing runs: a class is looked up among this package's own
errors and Python's built-in ones, and everything else becomes a :class:`ForeignError` that describes it.
"""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelmark import errors
from kernelmark.errors import KernelmarkError

__all__ = ["Failure", "ForeignError", "decode", "describe", "encode"]

_PLAIN = (str, int, float, bool, type(None))
_CAUSES = 4


class ForeignError(Exception):
    """An error of somebody else's code, raised in another process.

    Args:
        kind: Its class, with the module: ``torch.OutOfMemoryError``.
        message: What it said.
        bases: The classes that it derives from, the nearest first.
    """

    def __init__(self, kind: str, message: str, bases: tuple[str, ...] = ()) -> None:
        self.kind, self.message, self.bases = kind, message, bases
        super().__init__(f"{kind.rpartition('.')[2]}: {message}")

    def is_a(self, *names: str) -> bool:
        """Whether its class, or one that it derives from, has one of these names, with or without the module."""
        own = {self.kind, *self.bases}
        return bool({*own, *(each.rpartition(".")[2] for each in own)} & set(names))


@dataclass(frozen=True, slots=True)
class Failure:
    """What a worker's function raised."""

    error: BaseException
    """One of this package's, a built-in one, or a :class:`ForeignError`; with its cause and its notes."""
    traceback: str
    """As Python prints it, causes included."""

    @property
    def message(self) -> str:
        """What happened, in words."""
        return describe(self.error)


def describe(error: BaseException) -> str:
    """Say what an error is, in words: this package's own message, or the class and the message."""
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r})"
    if isinstance(error, KernelmarkError | ForeignError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def encode(error: BaseException) -> dict[str, Any]:
    """Turn an error into plain values; a field that is none is left out."""
    return {**_encoded(error, _CAUSES), "traceback": "".join(traceback.format_exception(error))}


def decode(told: Mapping[str, Any]) -> Failure:
    """Make an error of what :func:`encode` gave.

    Raises:
        ValueError: or KeyError, TypeError, AttributeError, where it is something else.
    """
    return Failure(_decoded(told, _CAUSES), str(told["traceback"]))


def _encoded(error: BaseException, depth: int) -> dict[str, Any]:
    told: dict[str, Any] = {
        "class": _name_of(type(error)),
        "bases": [_name_of(each) for each in type(error).__mro__[1:-1]],
        "message": str(error),
        "args": [each if isinstance(each, _PLAIN) else repr(each) for each in error.args],
        "fields": {name: value for name, value in _attributes(error).items() if _is_plain(value)},
        "notes": [str(each) for each in getattr(error, "__notes__", ())],
    }
    if isinstance(error, ForeignError):
        told |= {"class": error.kind, "bases": list(error.bases), "message": error.message, "fields": {}}
    cause = error.__cause__
    if cause is not None and depth:
        told["cause"] = _encoded(cause, depth - 1)
    return told


def _decoded(told: Mapping[str, Any], depth: int) -> BaseException:
    name, message = str(told["class"]), str(told["message"])
    module, _, short = name.rpartition(".")
    kind = _KINDS.get(module, {}).get(short)
    if kind is None:
        error: BaseException = ForeignError(name, message, tuple(map(str, told["bases"])))
    else:
        # as pickling does: the class's own __init__ would compose the message a second time
        arguments = [message] if issubclass(kind, KernelmarkError) else list(told["args"])
        error = kind.__new__(kind, *arguments)
        error.args = tuple(arguments)
        if issubclass(kind, KernelmarkError):
            fields = {
                str(name): value for name, value in told["fields"].items() if not str(name).startswith("__")
            }
            vars(error).update({**_MISSING.get(short, {}), **fields})
        elif isinstance(error, SystemExit):
            error.code = arguments[0] if arguments else None
        elif isinstance(error, ImportError):
            error.msg, error.name = message, told["fields"].get("name")
    for note in told["notes"]:
        error.add_note(str(note))
    if "cause" in told and depth:
        error.__cause__ = _decoded(told["cause"], depth - 1)
    return error


def _attributes(error: BaseException) -> dict[str, Any]:
    return {"name": error.name} if isinstance(error, ImportError) else vars(error)


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    return isinstance(value, _PLAIN)


def _classes(module: Any, base: type[BaseException]) -> dict[str, type[BaseException]]:
    found = vars(module).items()
    return {name: each for name, each in found if isinstance(each, type) and issubclass(each, base)}


_KINDS: dict[str, dict[str, type[BaseException]]] = {
    errors.__name__: _classes(errors, KernelmarkError),
    # not those whose arguments are more than plain values: they are described
    "builtins": {
        name: kind
        for name, kind in _classes(builtins, BaseException).items()
        if not issubclass(kind, UnicodeError | BaseExceptionGroup | SyntaxError) and name == kind.__name__
    },
}
_MISSING = {name: {"comparison": None} for name in _classes(errors, errors.VerificationError)}
"""Fields that a class always has, and that hold what is no plain value."""
