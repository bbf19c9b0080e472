"""The reference file: what the right answer is, what shapes the buffers have, and what is close enough.

The reference gets its own copy of everything, and its answer is brought into one form: output name → tensor. How
close is close enough is decided by :class:`kernelmark.verify.Policy`, from the command line, then from the file's
``atol``, ``rtol`` or ``reduction``, then from the two figures that kernel-benchmark scripts start from.
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
from kernelmark.kernelfile.request import Request
from kernelmark.verify import Form, Policy, Reduction, Tolerances, poison, untouched, unwritten
from kernelmark.verify.tolerance import OutputScale

__all__ = ["Reference"]

_DEFAULTS = {"atol": 1e-4, "rtol": 1e-3}


@dataclass(frozen=True, slots=True)
class Reference:
    """A loaded reference file.

    ``inout`` are outputs whose values before the call matter; ``policy`` decides how far outputs may be off.
    """

    path: Path
    module: ModuleType
    function: Callable[..., Any]
    inout: tuple[str, ...]
    policy: Policy

    @classmethod
    def load(cls, request: Request, values: Mapping[str, Any]) -> Reference:
        """Import the request's reference file; ``values`` are the command line's.

        Raises:
            UsageError: it cannot be imported, has no ``reference``, or its tolerances are none.
        """
        path = request.ref
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
        asked = Tolerances(atol=request.atol, rtol=request.rtol, source="command line")
        policy = Policy(Form.ELEMENTS, asked, _tolerances(module, path, values))
        return cls(path, module, function, (inout,) if isinstance(inout, str) else tuple(inout), policy)

    @property
    def tolerances(self) -> str:
        """The rule for float32 outputs, and where it came from."""
        rule, source = self.policy.for_dtype("float32")
        if isinstance(rule, Reduction):
            return f"sums of {rule.length} terms ({source})"
        return f"{rule.describe(OutputScale('float32'))} ({source})"

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
        if wrong := sorted(map(str, set(named) ^ set(outputs))):
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


def _tolerances(module: ModuleType, path: Path, values: Mapping[str, Any]) -> Tolerances:
    """Read what the file says of its tolerance; the defaults where it says nothing."""
    length = _reduction(module, path, values)
    own = {name: getattr(module, name) for name in _DEFAULTS if getattr(module, name, None) is not None}
    if length is not None:
        return Tolerances(**own, rule=Reduction(length), source=f"reduction of {path.name}")
    sources = {name: "reference file" if name in own else "default" for name in _DEFAULTS}
    same = len(set(sources.values())) == 1
    source = sources["atol"] if same else ", ".join(f"{name}: {where}" for name, where in sources.items())
    return Tolerances(**{**_DEFAULTS, **own}, source=source)


def _reduction(module: ModuleType, path: Path, values: Mapping[str, Any]) -> int | None:
    """Read how many terms the file's sums have: ``reduction = "N"``, a number, or ``reduction(**dims)``."""
    length = told = getattr(module, "reduction", None)
    if told is None:
        return None
    if callable(told):
        length = told(**accepted(told, values))
    elif isinstance(told, str):
        length = values.get(told)
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise UsageError(
            f"{path}: reduction = {told!r} is {length!r}; name a dimension that the command line gives, or give how"
            " many terms each sum has, as a number or as a function of the dimensions"
        )
    return length


def tensors_of(values: Iterable[Any]) -> list[torch.Tensor]:
    """Pick the tensors."""
    return [value for value in values if isinstance(value, torch.Tensor)]
