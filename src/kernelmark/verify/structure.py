"""The shape of an answer: nesting, names of its outputs, and whether two answers are built alike.

Structure is compared before numbers, so that no number is ever read from something that computes when it is
looked at, and nothing broadcasts. Values are not looked at here.
"""

from __future__ import annotations

import array
import copy
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch

from kernelmark.errors import UsageError
from kernelmark.text import counted

__all__ = [
    "Alignment",
    "Fault",
    "Leaf",
    "Pair",
    "align",
    "attributes",
    "describe",
    "detached_copy",
    "held_tensors",
    "leaves",
    "no_output",
    "rebuild",
    "storages",
    "tensors",
    "unreal",
]

Path = tuple[Any, ...]
"""Positions and keys from the whole answer down to one output."""

_NUMBERS = (bool, int, float, complex)

_OPAQUE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, torch.Generator)
"""What has attributes and is no argument's data."""


class Leaf(NamedTuple):
    """One thing that is no container, and where it was found."""

    name: str
    path: Path
    value: Any


class Pair(NamedTuple):
    """One output and what it is compared with: two tensors alike in everything but their elements, or two
    numbers of one type."""

    name: str
    path: Path
    got: Any
    expected: Any


class Fault(NamedTuple):
    """One place where two answers are not built alike."""

    name: str
    message: str
    expected: Any


@dataclass(slots=True)
class Alignment:
    """Two answers side by side. Where there are faults the numbers must not be compared."""

    pairs: list[Pair] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    beyond: tuple[str, ...] = ()
    """Names of the reference's outputs that were not asked for."""


def leaves(value: Any, root: str, path: Path = ()) -> Iterator[Leaf]:
    """Walk everything in ``value`` that is no container, depth first."""
    entries = _entries(value)
    if entries is None:
        yield Leaf(_name(root, path), path, value)
    for key, item in entries or ():
        yield from leaves(item, root, (*path, key))


def tensors(value: Any, root: str = "output") -> Iterator[tuple[str, torch.Tensor]]:
    """Walk the tensors among the leaves of ``value``, each with its name."""
    return ((leaf.name, leaf.value) for leaf in leaves(value, root) if isinstance(leaf.value, torch.Tensor))


def held_tensors(value: Any, name: str, seen: set[int] | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """Walk every tensor that a call can reach through ``value``, its arguments, each with its name.

    An array of numpy's comes as a tensor of the same memory, and objects are looked into, attribute by attribute.

    Raises:
        UsageError: something that holds values and is neither: it could not be kept, compared and restored.
    """
    seen = set() if seen is None else seen
    numpy = sys.modules.get("numpy")
    if isinstance(value, torch.Tensor):
        yield name, value
    elif numpy is not None and isinstance(value, numpy.ndarray):
        if value.flags.writeable:
            yield name, _same_memory(value, name)
    elif isinstance(value, bytearray | memoryview | array.array):
        raise UsageError(
            f"{name} is {_article(value)}; inputs of this kind cannot be kept and restored, so give a"
            " tensor or a numpy array"
        )
    elif (entries := _entries(value)) is not None:
        for key, item in entries:
            yield from held_tensors(item, f"{name}[{key!r}]", seen)
    elif not isinstance(value, _OPAQUE) and id(value) not in seen:
        seen.add(id(value))
        for attribute, item in attributes(value):
            yield from held_tensors(item, f"{name}.{attribute}", seen)


def attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """List what an object holds by name, without calling anything of its own; nothing for what holds nothing."""
    yield from dict(getattr(value, "__dict__", {})).items()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(kind.__dict__.get(name), "__get__") and hasattr(value, name):
                yield name, getattr(value, name)


def _same_memory(values: Any, name: str) -> torch.Tensor:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.from_numpy(values)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{name} is a numpy array of {values.dtype} that no tensor can stand for ({error}); give a tensor"
        ) from error


def no_output(value: Any) -> str:
    """Name the first thing in ``value`` that is no output, such as an array or a text; blank where there is none."""
    others = (leaf for leaf in leaves(value, "output") if _kind(leaf.value) == "other")
    return next((f"{leaf.name} is {_article(leaf.value)}" for leaf in others), "")


def rebuild(value: Any, change: Callable[[Leaf], Any], path: Path = ()) -> Any:
    """Make the same nesting anew with ``change(leaf)`` in the place of each leaf."""
    entries = _entries(value)
    if entries is None:
        return change(Leaf(_name("output", path), path, value))
    items = {key: rebuild(item, change, (*path, key)) for key, item in entries}
    if isinstance(value, tuple):
        if hasattr(value, "_make"):
            return type(value)._make(items.values())  # type: ignore[attr-defined]
        # torch.return_types take one sequence, as tuple does
        return type(value)(tuple(items.values()))
    same = copy.copy(value)
    for key, item in items.items():
        same[key] = item
    return same


def detached_copy(value: Any, inputs: Any) -> Any:
    """Give ``value`` with a copy in place of every tensor that shares memory with a tensor of ``inputs``.

    Whoever writes the inputs can then not write the answer. Everything else stays the object it is.
    """
    shared = storages(inputs)

    def change(leaf: Leaf) -> Any:
        return leaf.value.detach().clone() if storages(leaf.value) & shared else leaf.value

    return rebuild(value, change)


def storages(value: Any) -> set[tuple[str, int]]:
    """Tell the memory behind the tensors in ``value`` from other memory."""
    return {
        (str(tensor.device), tensor.untyped_storage().data_ptr())
        for _, tensor in tensors(value)
        if unreal(tensor) is None and tensor.numel()
    }


def describe(value: Any) -> str:
    """Say how ``value`` is built: ``(float32[4, 8] cpu, None, {'y': int64[4] cpu})``."""
    if isinstance(value, torch.Tensor):
        special = "" if unreal(value) is None else f" {type(value).__name__}"
        return f"{_plain(value.dtype)}{list(value.shape)} {value.device}{special}"
    kind, entries = _kind(value), _entries(value)
    if entries is None:
        return "None" if value is None else type(value).__name__
    if kind == "dict":
        return "{" + ", ".join(f"{key!r}: {describe(item)}" for key, item in entries) + "}"
    inner = ", ".join(describe(item) for _, item in entries)
    if kind == "list":
        return f"[{inner}]"
    return f"({inner},)" if len(entries) == 1 else f"({inner})"


# --- two answers side by side -----------------------------------------------------------------------


def align(got: Any, expected: Any, *, first: int | None = None) -> Alignment:
    """Put the answer of an implementation beside the reference's; of the ``first`` so many outputs, where it is given.

    An output is what stands at the top: an entry of the tuple, list or dict that came back, or the one tensor. How
    many more than ``first`` either side has does not matter.
    """
    found = Alignment()
    wanted = _entries(expected)
    count = 1 if wanted is None else len(wanted)
    if first is not None and count < first:
        found.faults.append(Fault("output", _too_few(first, count, "the reference"), expected))
        return found
    if first is not None:
        found.beyond = tuple(_name("output", (key,)) for key, _ in (wanted or ())[first:])
    _align((), got, expected, found, first)
    if not found.faults and not found.pairs:
        message = "there is nothing to compare: the reference gives no output"
        found.faults.append(Fault("output", message, expected))
    return found


def _align(path: Path, got: Any, expected: Any, found: Alignment, first: int | None = None) -> None:
    kind, message = _kind(expected), ""
    wanted, offered = (_entries(expected) or [])[:first], dict(_entries(got) or [])
    if kind == "other":
        message = f"the reference gives {_article(expected)}, which is no output; let it give tensors"
    elif _kind(got) != kind:
        message = f"is {_article(got)}, expected {_article(expected)}"
    elif kind == "tensor":
        message = _tensor_fault(got, expected)
    elif kind == "number" and type(got) is not type(expected):
        message = f"is of type {type(got).__name__}, expected {type(expected).__name__}"
    elif kind == "dict":
        missing = [repr(key) for key, _ in wanted if key not in offered]
        extra = [repr(key) for key in offered if key not in dict(wanted)] if first is None else []
        told = (("lacks", missing), ("also has", extra))
        message = "; ".join(f"{verb} {', '.join(keys)}" for verb, keys in told if keys)
    elif first is not None and len(offered) < len(wanted):
        message = _too_few(first, len(offered), "the implementation")
    elif first is None and len(offered) != len(wanted):
        message = f"has {counted(len(offered), 'output')}, expected {len(wanted)}"
    name = _name("output", path)
    if message:
        found.faults.append(Fault(name, message, expected))
    elif kind in ("tensor", "number"):
        found.pairs.append(Pair(name, path, got, expected))
    else:
        for key, item in wanted:
            _align((*path, key), offered[key], item, found)


def _tensor_fault(got: torch.Tensor, expected: torch.Tensor) -> str:
    for side, tensor in (("", got), ("the reference's ", expected)):
        if reason := unreal(tensor):
            return side + reason
    sides = (
        ("shape", tuple(got.shape), tuple(expected.shape)),
        ("dtype", got.dtype, expected.dtype),
        ("device", got.device, expected.device),
    )
    return "; ".join(
        f"has {what} {_plain(mine)}, expected {_plain(theirs)}"
        for what, mine, theirs in sides
        if mine != theirs
    )


def unreal(tensor: torch.Tensor) -> str | None:
    """Say why ``tensor`` is not elements in memory; ``None`` where it is."""
    if type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter:
        return (
            f"is a {type(tensor).__module__}.{type(tensor).__qualname__}, a tensor subclass that may compute"
            " when it is looked at; a plain torch.Tensor is needed"
        )
    if tensor.layout != torch.strided:
        return f"has layout {_plain(tensor.layout)}; only strided tensors are compared, return a dense one"
    if tensor.is_nested:
        return "is a nested tensor; return its values and its offsets as plain tensors"
    if tensor.is_quantized:
        return "is a quantised tensor; return its integers and its scale as plain tensors"
    if tensor.device.type == "meta":
        return "is on the meta device, where tensors have no elements"
    try:
        stored = tensor.numel() == 0 or tensor.data_ptr() != 0
    except RuntimeError:
        stored = False  # a wrapper of torch's function transforms: it has no memory of its own
    return None if stored else "has no memory behind it; a tensor that holds its elements is needed"


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "tensor"
    if value is None:
        return "none"
    if type(value) in _NUMBERS:
        return "number"
    return next((kind.__name__ for kind in (tuple, list, dict) if isinstance(value, kind)), "other")


def _entries(value: Any) -> list[tuple[Any, Any]] | None:
    """List a container's keys and items; ``None`` where ``value`` is no container.

    The base type's own iteration is used: a subclass cannot compute its items when they are looked at.
    """
    if isinstance(value, tuple):
        return list(enumerate(tuple.__iter__(value)))
    if isinstance(value, list):
        return list(enumerate(list.__iter__(value)))
    return list(dict.items(value)) if isinstance(value, dict) else None


# --- words ---------------------------------------------------------------------------------------------


def _name(root: str, path: Path) -> str:
    return root + "".join(f"[{key!r}]" for key in path)


def _article(value: Any) -> str:
    entries = _entries(value)
    if entries is not None:
        return f"a {_kind(value)} of {len(entries)}"
    if isinstance(value, torch.Tensor):
        return "a tensor"
    if value is None:
        return "None"
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _too_few(first: int, count: int, side: str) -> str:
    return f"the check is of the first {first} outputs, and {side} gives {count}"


def _plain(value: object) -> str:
    return str(value).removeprefix("torch.")
