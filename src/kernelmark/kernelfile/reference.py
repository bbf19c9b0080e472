"""The reference file: what the right answer is, what shapes the buffers have, and what is close enough.

The reference gets its own copy of everything, and its answer is brought into one form: output name → tensor.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelmark.errors import UsageError
from kernelmark.harness.loading import load_module
from kernelmark.verify import poison, untouched, unwritten

__all__ = ["Reference", "Tolerances", "tolerances_of"]

_DEFAULT_ATOL, _DEFAULT_RTOL = 1e-4, 1e-3


@dataclass(frozen=True, slots=True)
class Tolerances:
    """The two tolerances, and where each came from."""

    atol: float
    rtol: float
    sources: dict[str, str]


@dataclass(frozen=True, slots=True)
class Reference:
    """A loaded reference file.

    ``inout`` are outputs whose values before the call matter, by the file's own ``inout``.
    """

    path: Path
    module: ModuleType
    function: Callable[..., Any]
    inout: tuple[str, ...]

    @classmethod
    def load(cls, path: Path) -> Reference:
        """Import ``path``.

        Raises:
            UsageError: it cannot be imported, or has no ``reference``.
        """
        try:
            module = load_module(path)
        except Exception as error:
            raise UsageError(
                f"the reference {path} cannot be imported: {type(error).__name__}: {error}"
            ) from error
        function = getattr(module, "reference", None)
        if not callable(function):
            raise UsageError(f"{path} defines no reference(**kwargs)")
        inout = getattr(module, "inout", ())
        return cls(path, module, function, (inout,) if isinstance(inout, str) else tuple(inout))

    def shapes(self, scalars: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the file's ``shapes(**dims)``; nothing where it has none.

        Raises:
            UsageError: it raised, or gave no mapping.
        """
        function = getattr(self.module, "shapes", None)
        if function is None:
            return {}
        try:
            told = function(**accepted(function, scalars))
        except Exception as error:
            raise UsageError(f"{self.path}: shapes() raised {type(error).__name__}: {error}") from error
        if not isinstance(told, Mapping):
            raise UsageError(f"{self.path}: shapes() gave {told!r}; it must give {{parameter: shape}}")
        return dict(told)

    def answer(self, kwargs: Mapping[str, Any], outputs: tuple[str, ...]) -> dict[str, torch.Tensor]:
        """Compute the right answer for ``kwargs`` on a copy of them.

        Raises:
            UsageError: the answer has another form, count or names than ``outputs``, or is incomplete.
            Exception: whatever the reference raises.
        """
        written = [name for name in outputs if name not in self.inout]
        masks = []
        for which in (0, 1):
            copies = copied(kwargs)
            buffers = {name: copies[name] for name in written}
            poison(buffers, which)
            result = self.function(**copies)
            answer = by_name(result, outputs, copies, self.path)
            # what the reference returns need not be what it was given to write into
            masks.append(
                untouched({name: answer[name] for name in written if answer[name] is buffers[name]}, which)
            )
            if not masks[-1]:
                return answer
        left = unwritten(*masks)
        if left:
            raise UsageError(
                f"{self.path}: the reference leaves its outputs unwritten ({'; '.join(map(str, left))});"
                " it must write every element or return the answer. Outputs whose values before the call matter"
                ' are named in the file: inout = ("name",)'
            )
        return answer


def by_name(
    result: Any, outputs: tuple[str, ...], kwargs: Mapping[str, Any], path: Path
) -> dict[str, torch.Tensor]:
    """Bring what a reference returned into the form output name → tensor.

    Raises:
        UsageError: the count or the names are not those of ``outputs``, or something is no tensor.
    """
    if result is None:
        return {name: kwargs[name] for name in outputs}
    if isinstance(result, Mapping):
        named = dict(result)
        wrong = sorted(map(str, set(named) ^ set(outputs)))
        if wrong:
            raise UsageError(
                f"{path}: the reference returned outputs named {sorted(map(str, named))}, and the solution's are"
                f" {sorted(outputs)}; these differ: {', '.join(wrong)}"
            )
    else:
        values = list(result) if isinstance(result, tuple | list) else [result]
        if len(values) != len(outputs):
            raise UsageError(
                f"{path}: the reference returned {len(values)} outputs, and the solution has {len(outputs)}"
                f" ({', '.join(outputs)})"
            )
        named = dict(zip(outputs, values, strict=True))
    for name, value in named.items():
        if not isinstance(value, torch.Tensor):
            raise UsageError(f"{path}: the reference gave {type(value).__name__} for {name}; give a tensor")
    return {name: named[name] for name in outputs}


def accepted(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Give those of ``values`` that ``function`` can be called with."""
    parameters = inspect.signature(function).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return dict(values)
    return {name: value for name, value in values.items() if name in parameters}


def copied(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the tensors of ``kwargs``; the rest is passed on."""
    return {
        name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in kwargs.items()
    }


def tolerances_of(reference: Reference, atol: float | None, rtol: float | None) -> Tolerances:
    """Choose the tolerances: the command line's, then the reference file's, then the defaults.

    Raises:
        UsageError: the file's are no numbers.
    """
    found: dict[str, float] = {}
    sources: dict[str, str] = {}
    for name, told, default in (("atol", atol, _DEFAULT_ATOL), ("rtol", rtol, _DEFAULT_RTOL)):
        own = getattr(reference.module, name, None)
        if told is not None:
            found[name], sources[name] = told, "command line"
        elif own is not None:
            found[name], sources[name] = _number(own, name, reference.path), "reference file"
        else:
            found[name], sources[name] = default, "default"
    return Tolerances(found["atol"], found["rtol"], sources)


def _number(value: object, name: str, path: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise UsageError(f"{path}: {name} = {value!r}; give a number of at least 0")
    return float(value)


def tensors_of(values: Iterable[Any]) -> list[torch.Tensor]:
    """Pick the tensors."""
    return [value for value in values if isinstance(value, torch.Tensor)]
