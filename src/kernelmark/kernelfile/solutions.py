"""Solutions: what a kernel file is called with, which outputs it writes, and a call without arguments.

A library's arguments are drawn here; a Python file's come from its own ``setup``. Each kind can make its arguments
twice: once as data that the solution's own instance has never seen, and once for that instance itself. The judge
makes data here too, and never loads an instance. Both draw the same values from the same seed.
"""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kernelmark.errors import CrashedError, UnavailableError, UsageError
from kernelmark.harness.loading import load_module
from kernelmark.isolation import refuse_foreign_code_in_a_judge
from kernelmark.kernelfile.buffers import Sizes, fill, infer_sizes
from kernelmark.kernelfile.ctype import number
from kernelmark.kernelfile.handover import Job
from kernelmark.kernelfile.languages import LANGUAGES, Language
from kernelmark.kernelfile.names import names_in_python
from kernelmark.kernelfile.reference import Reference, accepted
from kernelmark.kernelfile.request import Request
from kernelmark.kernelfile.signature import Signature, scalars_of, signature_of
from kernelmark.verify.guards import Canaries

__all__ = ["LibrarySolution", "ModuleSolution", "Prepared", "Ready", "device_of", "prepare"]


@dataclass(slots=True)
class Ready:
    """The arguments of one instance of a solution, by name, and how it is called with them."""

    kwargs: dict[str, Any]
    outputs: tuple[str, ...]
    call: Callable[[], Any]
    canaries: Canaries = field(default_factory=Canaries)
    """The guards around its buffers, where they are ours to lay out."""


@dataclass(frozen=True, slots=True)
class LibrarySolution:
    """``solve(...)`` of a compiled library; its arguments are ours."""

    library: Path
    signature: Signature
    scalars: dict[str, Any]
    sizes: Sizes
    device: str

    def data(self, seed: int) -> Ready:
        """Draw the arguments that are compared."""
        torch.manual_seed(seed)
        kwargs: dict[str, Any] = {}
        for each in self.signature.parameters:
            if each.pointer:
                kwargs[each.name] = fill(each.type.dtype, self.sizes[each.name], self.device)
            else:
                kwargs[each.name] = self.scalars[each.name]
        return Ready(kwargs, tuple(each.name for each in self.signature.outputs), lambda: None)

    def ready(self, seed: int) -> Ready:
        """Load the instance that is checked and timed, and bind its own arguments.

        Raises:
            CrashedError: it cannot be loaded, or does not export ``solve``.
        """
        refuse_foreign_code_in_a_judge(self.library)
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
        """Make the arguments that are compared in an instance of the file that is thrown away afterwards."""
        return self.ready(seed)

    def ready(self, seed: int) -> Ready:
        """Import the file afresh and call its ``setup``.

        Raises:
            CrashedError: the file, or its ``setup``, raised.
            UsageError: what ``setup`` gave cannot be used.
        """
        refuse_foreign_code_in_a_judge(self.path)
        torch.manual_seed(seed)
        try:
            module = load_module(self.path)
            setup, run_kernel = module.setup, module.run_kernel
            seeded = {"seed": seed} if "seed" in inspect.signature(setup).parameters else {}
            with torch.device(self.device):
                made = setup(**accepted(setup, {**seeded, **self.values}))
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
            names = f" with {sorted(map(str, made))}" if isinstance(made, Mapping) else ""
            raise self._error(
                f"gave a {type(made).__name__}{names}; it must give {{'inputs': {{...}}, 'outputs': [...]}}"
            )
        inputs, outputs = made["inputs"], made["outputs"]
        if not isinstance(inputs, Mapping):
            raise self._error(
                f"gave a {type(inputs).__name__} as inputs; give a dict from name to tensor or number"
            )
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


# --- what a worker and a judge make of a request -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request with its reference loaded and its arguments known."""

    reference: Reference
    solution: LibrarySolution | ModuleSolution
    extra: dict[str, Any]
    """The command line's values for the reference; what the solution is called with comes before them."""
    facts: dict[str, Any]
    """What the report says about how it came about."""

    @property
    def inferred(self) -> frozenset[str]:
        """Buffers whose size was guessed, which may therefore be larger than the answer."""
        return self.solution.sizes.inferred if isinstance(self.solution, LibrarySolution) else frozenset()


def prepare(job: Job, device: str) -> Prepared:
    """Load the reference and decide the arguments; nothing of the solution's is loaded.

    Raises:
        UsageError: the files and values do not fit each other.
    """
    request = job.request
    # the reference may draw something when it is imported, or in shapes()
    torch.manual_seed(request.seed)
    values = {name: number(text) for name, text in request.values.items()}
    reference = Reference.load(request, values)
    facts: dict[str, Any] = {"tolerances": reference.tolerances}
    extra = accepted(reference.function, values)
    if job.library is None:
        return Prepared(reference, ModuleSolution(request.solution, values, device), extra, facts)
    signature = signature_of(request)
    scalars = scalars_of(request, signature)
    sizes = infer_sizes(signature, scalars, reference.shapes({**values, **scalars}), request.ptr_size)
    facts |= {"buffers": sizes.describe(), "buffers from": sizes.how}
    told = {each.name for each in signature.parameters}
    return Prepared(
        reference,
        LibrarySolution(job.library, signature, scalars, sizes, device),
        {name: value for name, value in extra.items() if name not in told},
        facts,
    )


def device_of(request: Request) -> str:
    """Give the device that the request runs on, by the name that opens it.

    Raises:
        UsageError: the language does not run on the device that is asked for.
        UnavailableError: there is no such device here.
    """
    entry = LANGUAGES[request.language]
    if entry.runs_on == "cpu" or request.interpreted:
        if request.device not in ("auto", "cpu"):
            raise UsageError(f"--device={request.device}: {entry.backend} runs on the CPU")
        return "cpu"
    if entry.runs_on == "any" and request.device != "auto":
        return request.device
    if torch.cuda.is_available():
        if request.device not in ("auto", "cuda") and not request.device.startswith("cuda:"):
            raise UsageError(f"--device={request.device}: {entry.backend} runs on CUDA devices")
        return request.device if ":" in request.device else f"cuda:{request.gpu}"
    if entry.runs_on == "any":
        return "auto"
    advice = (
        "; a file that only uses torch runs here with --implementation=torch, and with --device=cpu Triton's"
        " interpreter verifies it, untimed"
        if request.language is Language.TRITON
        else ""
    )
    raise UnavailableError(f"{entry.backend} needs a CUDA device, and torch finds none here{advice}")
