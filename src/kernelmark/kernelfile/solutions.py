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
from math import prod
from pathlib import Path
from typing import Any

import torch

from kernelmark.errors import CrashedError, UnavailableError, UsageError
from kernelmark.harness.loading import load_module
from kernelmark.isolation import refuse_foreign_code_in_a_judge
from kernelmark.kernelfile.names import names_in_python
from kernelmark.kernelfile.reference import Reference, accepted
from kernelmark.kernelfile.request import LANGUAGES, Job, Language, Request
from kernelmark.kernelfile.signature import Signature, number, scalars_of, signature_of
from kernelmark.verify.guards import Canaries

__all__ = [
    "LibrarySolution",
    "ModuleSolution",
    "Prepared",
    "Ready",
    "Sizes",
    "device_of",
    "fill",
    "infer_sizes",
    "prepare",
    "shown_as",
    "take_values",
]


@dataclass(slots=True)
class Ready:
    """The arguments of one instance of a solution, by name, and how it is called with them."""

    kwargs: dict[str, Any]
    outputs: tuple[str, ...]
    call: Callable[[], Any] = lambda: None
    canaries: Canaries = field(default_factory=Canaries)
    """The guards around its buffers, where they are ours to lay out."""


def take_values(own: Ready, fresh: Ready) -> bool:
    """Give the solution's own arguments the values of ``fresh``, at their own addresses.

    Gives whether all floats among the inputs were the same before.

    Raises:
        UsageError: the two do not have the same names and forms.
    """
    if set(own.kwargs) != set(fresh.kwargs) or own.outputs != fresh.outputs:
        raise UsageError(
            "setup() gave other names when it was called again; what it gives may depend on its arguments only"
        )
    same = True
    for name, value in fresh.kwargs.items():
        mine = own.kwargs[name]
        if not isinstance(value, torch.Tensor):
            own.kwargs[name] = value
            continue
        if not isinstance(mine, torch.Tensor) or (mine.shape, mine.dtype) != (value.shape, value.dtype):
            raise UsageError(f"setup() gave {name} in another shape or dtype when it was called again")
        if name not in own.outputs and value.is_floating_point():
            same = same and torch.equal(mine, value)
        mine.copy_(value)
    return same


def shown_as(buffer: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
    """Look at a flat buffer in the shape of the reference's answer, where it can be; C knows no shapes."""
    if answer.dtype != buffer.dtype or answer.numel() > buffer.numel():
        return buffer
    return buffer.reshape(-1)[: answer.numel()].view(answer.shape)


# --- libraries -----------------------------------------------------------------------------------------

_NO_DIMENSION = 2**20
_LARGEST = 2**28


@dataclass(frozen=True, slots=True)
class Sizes:
    """The shape of each buffer, or the tensor it starts as, and how that was decided."""

    by_name: dict[str, Any]
    how: str
    inferred: frozenset[str]
    """The buffers whose size nobody has told."""

    def describe(self) -> dict[str, str]:
        """Say each buffer's shape, for the report."""
        shapes = {name: getattr(value, "shape", value) for name, value in self.by_name.items()}
        return {name: "×".join(map(str, shape)) for name, shape in shapes.items()}


def infer_sizes(
    signature: Signature, scalars: Mapping[str, Any], shapes: Mapping[str, Any], ptr_size: int
) -> Sizes:
    """Decide the buffers: from ``shapes`` where it names one, then from ``ptr_size``, then from the integers.

    No integer argument gives 2²⁰ elements, one gives its value, more give the product of the two largest, and
    2²⁸ is the most.

    Raises:
        UsageError: ``shapes`` names what is no buffer, or gives no shape.
    """
    pointers = [each.name for each in signature.pointers]
    if unknown := ", ".join(sorted(set(map(str, shapes)) - set(pointers))):
        raise UsageError(f"shapes() gives {unknown}, and solve() has the buffers {', '.join(pointers)}")
    told = {name: _shape(shapes[name], name) for name in pointers if name in shapes}
    integers = [each.name for each in signature.scalars if each.type.kind in ("int", "uint")]
    largest = sorted(integers, key=lambda name: -int(scalars[name]))[:2]
    if ptr_size:
        count, rule = ptr_size, f"--ptr-size={ptr_size}"
    elif not largest:
        count = _NO_DIMENSION
        rule = f"inferred: {count} elements, since solve() has no integer argument"
    else:
        count = max(1, min(_LARGEST, prod(max(1, int(scalars[name])) for name in largest)))
        factors = " × ".join(f"{name}={int(scalars[name])}" for name in largest)
        rule = f"inferred: {count} elements from {factors}" + f", at most {_LARGEST}" * (count == _LARGEST)
    left = frozenset(pointers) - set(told)
    parts = ["shapes() of the reference"] * bool(told) + [rule] * bool(left)
    return Sizes({name: told.get(name, (count,)) for name in pointers}, "; ".join(parts), left)


def _shape(value: Any, name: str) -> Any:
    if isinstance(value, torch.Tensor):
        return value
    given = f"shapes() gives {name} = {value!r}"
    try:
        sizes = tuple(int(each) for each in ((value,) if isinstance(value, int) else value))
    except (TypeError, ValueError):
        raise UsageError(f"{given}; give a shape such as (M, N), or a tensor") from None
    if any(each < 0 for each in sizes):
        raise UsageError(f"{given}; a dimension cannot be negative")
    return sizes


def fill(dtype: str, size: Any, device: str) -> torch.Tensor:
    """Draw one buffer: normal numbers, integers from 0 to 9, or booleans; a tensor is copied."""
    wanted: torch.dtype = getattr(torch, dtype)
    if isinstance(size, torch.Tensor):
        return size.to(device=device, dtype=wanted, copy=True).contiguous()
    if wanted.is_floating_point:
        return torch.randn(size, device=device, dtype=torch.float32).to(wanted)
    high = 2 if wanted == torch.bool else 10
    return torch.randint(0, high, size, device=device, dtype=torch.int64).to(wanted)


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
        kwargs = {
            each.name: fill(each.type.dtype, self.sizes.by_name[each.name], self.device)
            if each.pointer
            else self.scalars[each.name]
            for each in self.signature.parameters
        }
        return Ready(kwargs, tuple(each.name for each in self.signature.outputs))

    def ready(self, seed: int) -> Ready:
        """Load the instance that is checked and timed, and bind its own arguments.

        Raises:
            CrashedError: it cannot be loaded, or does not export ``solve``.
        """
        refuse_foreign_code_in_a_judge(self.library)
        made = self.data(seed)
        for each in self.signature.pointers:
            buffer = made.kwargs[each.name]
            made.kwargs[each.name] = made.canaries.around(each.name, buffer, written=each.is_output)
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


# --- Python files --------------------------------------------------------------------------------------


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
        for name in (name for name in kwargs if name in self.values and name not in takes):
            raise self._error(
                f"gives {name} itself and takes no {name}, so that --{name}={self.values[name]} would be ignored;"
                " let it take the value, or leave the option away"
            )
        return Ready(kwargs, outputs, lambda: run_kernel(**kwargs))

    def _unpack(self, made: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
        kind = type(made).__name__
        if not isinstance(made, Mapping) or not {"inputs", "outputs"} <= set(made):
            kind += f" with {sorted(map(str, made))}" if isinstance(made, Mapping) else ""
            raise self._error(f"gave a {kind}; it must give {{'inputs': {{...}}, 'outputs': [...]}}")
        inputs, outputs = made["inputs"], made["outputs"]
        if not isinstance(inputs, Mapping):
            kind = type(inputs).__name__
            raise self._error(f"gave a {kind} as inputs; give a dict from name to tensor or number")
        names = (outputs,) if isinstance(outputs, str) else tuple(outputs)
        if not names:
            raise self._error("names no output, so nothing could be compared; name at least one")
        if len(set(names)) < len(names):
            raise self._error(f"names an output twice: {', '.join(names)}")
        for name in (name for name in names if not isinstance(inputs.get(name), torch.Tensor)):
            raise self._error(f"names the output {name!r}, and its inputs hold no tensor of that name")
        owner: dict[int, str] = {}
        for name, value in inputs.items():
            if not isinstance(value, torch.Tensor):
                continue
            if value.device != torch.device(self.device):
                raise self._error(f"put {name} on {value.device}, and the run is on {self.device}")
            memory = value.untyped_storage().data_ptr()
            other = owner.setdefault(memory, name)
            if memory and other != name and (name in names or other in names):
                raise self._error(
                    f"gave {other} and {name} the same memory; an output needs its own (one that the kernel updates"
                    ' in place is one tensor, named in the reference file: inout = ("name",))'
                )
        return dict(inputs), names

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
    extra = {name: value for name, value in extra.items() if name not in told}
    return Prepared(reference, LibrarySolution(job.library, signature, scalars, sizes, device), extra, facts)


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
