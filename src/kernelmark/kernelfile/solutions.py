"""A solution as the binding sees it: buffers of its own, which outputs it writes, and a call without arguments.

Each kind can make its arguments twice: once as data that the solution's own instance has never seen, and once
for that instance itself.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from kernelmark.errors import CrashedError, UsageError
from kernelmark.harness.loading import load_module
from kernelmark.kernelfile.buffers import Sizes, fill
from kernelmark.kernelfile.names import names_in_python
from kernelmark.kernelfile.reference import accepted
from kernelmark.kernelfile.signature import Signature
from kernelmark.verify.canaries import Canaries

__all__ = ["LibrarySolution", "ModuleSolution", "Ready", "Solution"]


@dataclass(slots=True)
class Ready:
    """The arguments of one instance of a solution, by name, and how it is called with them."""

    kwargs: dict[str, Any]
    outputs: tuple[str, ...]
    call: Callable[[], Any]
    canaries: Canaries = field(default_factory=Canaries)
    """The guards around its buffers, where they are ours to lay out."""


class Solution(Protocol):
    """What both kinds can do."""

    def data(self, seed: int) -> Ready:
        """Make the arguments that are compared; what made them is never called with them."""
        ...

    def ready(self, seed: int) -> Ready:
        """Load the instance that is checked and timed, with arguments of its own."""
        ...


@dataclass(frozen=True, slots=True)
class LibrarySolution:
    """``solve(...)`` of a compiled library; its arguments are ours."""

    library: Path
    signature: Signature
    scalars: dict[str, Any]
    sizes: Sizes
    device: str

    def data(self, seed: int) -> Ready:
        """Draw the buffers."""
        torch.manual_seed(seed)
        kwargs: dict[str, Any] = {}
        for each in self.signature.parameters:
            if each.pointer:
                kwargs[each.name] = fill(each.type.dtype, self.sizes[each.name], self.device)
            else:
                kwargs[each.name] = self.scalars[each.name]
        return Ready(kwargs, tuple(each.name for each in self.signature.outputs), lambda: None)

    def ready(self, seed: int) -> Ready:
        """Load the library and bind its arguments.

        Raises:
            CrashedError: it cannot be loaded, or does not export ``solve``.
        """
        made = self.data(seed)
        for each in self.signature.pointers:
            made.kwargs[each.name] = made.canaries.around(
                each.name, made.kwargs[each.name], written=each.is_output
            )
        try:
            solve = ctypes.CDLL(str(self.library.resolve())).solve
        except (OSError, AttributeError) as error:
            raise CrashedError(f"the library cannot be used: {error}") from error
        solve.restype = None
        arguments = tuple(
            ctypes.c_void_p(made.kwargs[each.name].data_ptr())
            if each.pointer
            else each.type.pass_by_value(made.kwargs[each.name])
            for each in self.signature.parameters
        )
        made.call = lambda: solve(*arguments)
        return made


@dataclass(frozen=True, slots=True)
class ModuleSolution:
    """``setup`` and ``run_kernel`` of a Python file."""

    path: Path
    values: dict[str, Any]
    device: str

    def data(self, seed: int) -> Ready:
        """Make the arguments in an instance of the file that is thrown away afterwards."""
        return self.ready(seed)

    def ready(self, seed: int) -> Ready:
        """Import the file afresh and call its ``setup``.

        Raises:
            CrashedError: the file, or its ``setup``, raised.
            UsageError: what ``setup`` gave cannot be used.
        """
        torch.manual_seed(seed)
        try:
            module = load_module(self.path)
            setup, run_kernel = module.setup, module.run_kernel
            given = dict(self.values)
            named = getattr(setup, "__code__", None)
            if (
                named is not None
                and "seed" in named.co_varnames[: named.co_argcount + named.co_kwonlyargcount]
            ):
                given.setdefault("seed", seed)
            with torch.device(self.device):
                made = setup(**accepted(setup, given))
        except Exception as error:
            raise CrashedError(f"{self.path.name}: {type(error).__name__}: {error}") from error
        kwargs, outputs = self._unpack(made)
        takes = names_in_python(self.path, ("setup",), required=())
        for name in kwargs:
            if name in self.values and name not in takes:
                raise self._error(
                    f"gives {name} itself and takes no {name}, so that --{name}={self.values[name]} would be ignored;"
                    " let it take the value, or leave the option away"
                )
        return Ready(kwargs, outputs, lambda: run_kernel(**kwargs))

    def _unpack(self, made: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
        if not isinstance(made, Mapping) or not {"inputs", "outputs"} <= set(made):
            raise self._error(f"gave {_shown(made)}; it must give {{'inputs': {{...}}, 'outputs': [...]}}")
        inputs, outputs = made["inputs"], made["outputs"]
        if not isinstance(inputs, Mapping):
            raise self._error(f"gave {_shown(inputs)} as inputs; give a dict from name to tensor or number")
        names = (outputs,) if isinstance(outputs, str) else tuple(outputs)
        if not names:
            raise self._error("names no output, so nothing could be compared; name at least one")
        if len(set(names)) < len(names):
            raise self._error(f"names an output twice: {', '.join(names)}")
        for name in names:
            if not isinstance(inputs.get(name), torch.Tensor):
                raise self._error(f"names the output {name!r}, and its inputs hold no tensor of that name")
        self._require_apart(inputs, names)
        return dict(inputs), names

    def _require_apart(self, inputs: Mapping[str, Any], outputs: tuple[str, ...]) -> None:
        owner: dict[int, str] = {}
        for name, value in inputs.items():
            if not isinstance(value, torch.Tensor):
                continue
            if value.device != torch.device(self.device):
                raise self._error(f"put {name} on {value.device}, and the run is on {self.device}")
            memory = value.untyped_storage().data_ptr()
            other = owner.setdefault(memory, name)
            if memory and other != name and (name in outputs or other in outputs):
                raise self._error(
                    f"gave {other} and {name} the same memory; an output needs its own (one that the kernel updates"
                    ' in place is one tensor, named in the reference file: inout = ("name",))'
                )

    def _error(self, what: str) -> UsageError:
        return UsageError(f"{self.path}: setup() {what}")


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" + (
        f" with {sorted(map(str, value))}" if isinstance(value, Mapping) else ""
    )
