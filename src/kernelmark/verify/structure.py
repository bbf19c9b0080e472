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
from typing import Any

import torch

from kernelmark.errors import UsageError

__all__ = [
    "Alignment",
    "Fault",
    "Leaf",
    "Pair",
    "align",
    "describe",
    "detached_copy",
    "held_tensors",
    "leaves",
    "no_output",
    "rebuild",
    "storage_key",
    "unreal",
]

Path = tuple[Any, ...]
"""Positions and keys from the whole answer down to one output."""

_NUMBERS = (bool, int, float, complex)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One thing that is no container, and where it was found."""

    name: str
    path: Path
    value: Any


@dataclass(frozen=True, slots=True)
class Pair:
    """One output and what it is compared with: two tensors alike in everything but their elements, or two
    numbers of one type."""

    name: str
    path: Path
    got: Any
    expected: Any


@dataclass(frozen=True, slots=True)
class Fault:
    """One place where two answers are not built alike."""

    name: str
    message: str
    expected: Any = None


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
        return
    for key, item in entries:
        yield from leaves(item, root, (*path, key))


def held_tensors(value: Any, root: str) -> Iterator[Leaf]:
    """Walk every tensor that a call can reach through ``value``, its arguments.

    An array of numpy's comes as a tensor of the same memory, and objects are looked into, attribute by attribute.

    Raises:
        UsageError: something that holds values and is neither: it could not be kept, compared and restored.
    """
    yield from _held_tensors(value, root, (), set())


_OPAQUE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, torch.Generator)
"""What has attributes and is no argument's data."""


def _held_tensors(value: Any, root: str, path: Path, seen: set[int]) -> Iterator[Leaf]:
    numpy = sys.modules.get("numpy")
    if isinstance(value, torch.Tensor):
        yield Leaf(_name(root, path), path, value)
    elif numpy is not None and isinstance(value, numpy.ndarray):
        if value.flags.writeable:
            yield Leaf(_name(root, path), path, _same_memory(value, _name(root, path)))
    elif isinstance(value, bytearray | memoryview | array.array):
        raise UsageError(
            f"{_name(root, path)} is {_article(value)}; inputs of this kind cannot be kept and restored, so give a"
            " tensor or a numpy array"
        )
    elif (entries := _entries(value)) is not None:
        for key, item in entries:
            yield from _held_tensors(item, root, (*path, key), seen)
    elif not isinstance(value, _OPAQUE) and id(value) not in seen:
        seen.add(id(value))
        for name, item in attributes(value):
            yield from _held_tensors(item, f"{_name(root, path)}.{name}", (), seen)


def attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """List what an object holds by name, without calling anything of its own; nothing for what holds nothing."""
    yield from dict(getattr(value, "__dict__", {})).items()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            found = kind.__dict__.get(name)
            if hasattr(found, "__get__") and hasattr(value, name):
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


def align(got: Any, expected: Any, *, first: int | None = None, root: str = "output") -> Alignment:
    """Put ``got`` beside ``expected``.

    Args:
        got: The answer of an implementation.
        expected: The reference's answer.
        first: Compare only so many outputs. An output is what stands at the top: an entry of the tuple, list
            or dict that came back, or the one tensor. How many more either side has does then not matter.
        root: What to call the whole.
    """
    found = Alignment()
    entries = _entries(expected)
    if first is None:
        _align((), got, expected, found, root)
    elif entries is None:
        if first > 1:
            found.faults.append(_too_few(first, 1, "the reference", root))
        else:
            _align((), got, expected, found, root)
    else:
        _align_first(first, got, expected, found, root)
    if not found.faults and not found.pairs:
        found.faults.append(
            Fault(root, "there is nothing to compare: the reference gives no output", expected)
        )
    return found


def no_output(value: Any, root: str = "output") -> str:
    """Name the first thing in ``value`` that is no output, such as an array or a text; blank where there is none."""
    for leaf in leaves(value, root):
        if _kind(leaf.value) == "other":
            return f"{leaf.name} is {_article(leaf.value)}"
    return ""


def rebuild(value: Any, change: Callable[[Leaf], Any], root: str = "output") -> Any:
    """Make the same nesting anew with ``change(leaf)`` in the place of each leaf."""
    return _rebuild(value, change, root, ())


def detached_copy(value: Any, inputs: Any) -> Any:
    """Give ``value`` with a copy in place of every tensor that shares memory with a tensor of ``inputs``.

    Whoever writes the inputs can then not write the answer. Everything else stays the object it is.
    """
    shared = {
        storage_key(leaf.value) for leaf in leaves(inputs, "inputs") if isinstance(leaf.value, torch.Tensor)
    }
    shared.discard(None)

    def change(leaf: Leaf) -> Any:
        if isinstance(leaf.value, torch.Tensor) and storage_key(leaf.value) in shared:
            return leaf.value.detach().clone()
        return leaf.value

    return rebuild(value, change)


def describe(value: Any) -> str:
    """Say how ``value`` is built: ``(float32[4, 8] cpu, None, {'y': int64[4] cpu})``."""
    kind = _kind(value)
    entries = _entries(value)
    if entries is not None:
        if kind == "dict":
            return "{" + ", ".join(f"{key!r}: {describe(item)}" for key, item in entries) + "}"
        inner = ", ".join(describe(item) for _, item in entries)
        if kind == "list":
            return f"[{inner}]"
        return f"({inner},)" if len(entries) == 1 else f"({inner})"
    if isinstance(value, torch.Tensor):
        special = "" if unreal(value) is None else f" {type(value).__name__}"
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{dtype}{list(value.shape)} {value.device}{special}"
    return "None" if value is None else type(value).__name__


# --- two answers side by side -----------------------------------------------------------------------


def _align_first(first: int, got: Any, expected: Any, found: Alignment, root: str) -> None:
    wanted, offered = _entries(expected) or [], _entries(got)
    if len(wanted) < first:
        found.faults.append(_too_few(first, len(wanted), "the reference", root))
        return
    found.beyond = tuple(_name(root, (key,)) for key, _ in wanted[first:])
    if _kind(got) != _kind(expected) or offered is None:
        found.faults.append(_kind_fault((), got, expected, root))
        return
    by_key = dict(offered)
    missing = [key for key, _ in wanted[:first] if key not in by_key]
    if missing and _kind(expected) == "dict":
        found.faults.append(Fault(root, f"lacks {', '.join(map(repr, missing))}", expected))
        return
    if missing:
        found.faults.append(_too_few(first, len(offered), "the implementation", root))
        return
    for key, item in wanted[:first]:
        _align((key,), by_key[key], item, found, root)


def _align(path: Path, got: Any, expected: Any, found: Alignment, root: str) -> None:
    kind = _kind(expected)
    name = _name(root, path)
    if kind == "other":
        message = f"the reference gives {_article(expected)}, which is no output; let it give tensors"
        found.faults.append(Fault(name, message, expected))
    elif _kind(got) != kind:
        found.faults.append(_kind_fault(path, got, expected, root))
    elif kind in ("tuple", "list", "dict"):
        _align_entries(path, got, expected, found, root)
    elif kind == "tensor":
        message = _tensor_fault(got, expected)
        if message is None:
            found.pairs.append(Pair(name, path, got, expected))
        else:
            found.faults.append(Fault(name, message, expected))
    elif kind == "number":
        if type(got) is type(expected):
            found.pairs.append(Pair(name, path, got, expected))
        else:
            message = f"is of type {type(got).__name__}, expected {type(expected).__name__}"
            found.faults.append(Fault(name, message, expected))


def _align_entries(path: Path, got: Any, expected: Any, found: Alignment, root: str) -> None:
    wanted, offered = _entries(expected) or [], dict(_entries(got) or [])
    if _kind(expected) == "dict":
        missing = [repr(key) for key, _ in wanted if key not in offered]
        extra = [repr(key) for key in offered if key not in dict(wanted)]
        message = "; ".join(
            f"{verb} {', '.join(keys)}" for verb, keys in (("lacks", missing), ("also has", extra)) if keys
        )
    else:
        differ = len(wanted) != len(offered)
        message = f"has {_count(len(offered))}, expected {len(wanted)}" if differ else ""
    if message:
        found.faults.append(Fault(_name(root, path), message, expected))
        return
    for key, item in wanted:
        _align((*path, key), offered[key], item, found, root)


def _tensor_fault(got: torch.Tensor, expected: torch.Tensor) -> str | None:
    for side, tensor in (("", got), ("the reference's ", expected)):
        reason = unreal(tensor)
        if reason is not None:
            return side + reason
    differences = [
        f"has {field_name} {_plain(mine)}, expected {_plain(theirs)}"
        for field_name, mine, theirs in (
            ("shape", tuple(got.shape), tuple(expected.shape)),
            ("dtype", got.dtype, expected.dtype),
            ("device", got.device, expected.device),
        )
        if mine != theirs
    ]
    return "; ".join(differences) or None


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


def _kind_fault(path: Path, got: Any, expected: Any, root: str) -> Fault:
    return Fault(_name(root, path), f"is {_article(got)}, expected {_article(expected)}", expected)


def _too_few(first: int, count: int, side: str, root: str) -> Fault:
    return Fault(root, f"the check is of the first {first} outputs, and {side} gives {count}")


# --- containers ----------------------------------------------------------------------------------------


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "tensor"
    if value is None:
        return "none"
    if type(value) in _NUMBERS:
        return "number"
    for kind in (tuple, list, dict):
        if isinstance(value, kind):
            return kind.__name__
    return "other"


def _entries(value: Any) -> list[tuple[Any, Any]] | None:
    """List a container's keys and items; ``None`` where ``value`` is no container.

    The base type's own iteration is used: a subclass cannot compute its items when they are looked at.
    """
    if isinstance(value, tuple):
        return list(enumerate(tuple.__iter__(value)))
    if isinstance(value, list):
        return list(enumerate(list.__iter__(value)))
    if isinstance(value, dict):
        return list(dict.items(value))
    return None


def _rebuild(value: Any, change: Callable[[Leaf], Any], root: str, path: Path) -> Any:
    entries = _entries(value)
    if entries is None:
        return change(Leaf(_name(root, path), path, value))
    items = {key: _rebuild(item, change, root, (*path, key)) for key, item in entries}
    if isinstance(value, tuple):
        if hasattr(value, "_make"):
            return type(value)._make(items.values())  # type: ignore[attr-defined]
        # torch.return_types take one sequence, as tuple does
        return type(value)(items.values()) if type(value) is tuple else type(value)(tuple(items.values()))
    same = copy.copy(value)
    for key, item in items.items():
        same[key] = item
    return same


def storage_key(tensor: torch.Tensor) -> tuple[str, int] | None:
    """Tell the memory behind ``tensor`` from other memory; ``None`` where it has none of its own."""
    if unreal(tensor) is not None or tensor.numel() == 0:
        return None
    return str(tensor.device), tensor.untyped_storage().data_ptr()


# --- words ---------------------------------------------------------------------------------------------


def _name(root: str, path: Path) -> str:
    return root + "".join(f"[{key!r}]" for key in path)


def _article(value: Any) -> str:
    kind = _kind(value)
    if kind in ("tuple", "list", "dict"):
        return f"a {kind} of {len(_entries(value) or ())}"
    if kind == "tensor":
        return "a tensor"
    if kind == "none":
        return "None"
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _count(count: int) -> str:
    return "1 output" if count == 1 else f"{count} outputs"


def _plain(value: object) -> str:
    return str(value).removeprefix("torch.")
