"""What the worker and the judge both make of a request: device, reference, tolerances, buffers, arguments.

Both draw the same values from the same seed, since both come here. Nothing of the solution's is loaded here.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from kernelmark.errors import UnavailableError, UsageError
from kernelmark.kernelfile.arguments import scalars_of, signature_of
from kernelmark.kernelfile.buffers import infer_sizes
from kernelmark.kernelfile.ctype import number
from kernelmark.kernelfile.languages import LANGUAGES, Language
from kernelmark.kernelfile.reference import Reference, Tolerances, accepted, tolerances_of
from kernelmark.kernelfile.request import Request
from kernelmark.kernelfile.solutions import LibrarySolution, ModuleSolution, Solution
from kernelmark.verify import Elementwise, Exact

__all__ = ["Prepared", "device_of", "prepare"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request with its reference loaded and its arguments known."""

    reference: Reference
    tolerances: Tolerances
    solution: Solution
    extra: dict[str, Any]
    """The command line's values for the reference; what the solution is called with comes before them."""
    inferred: frozenset[str]
    """Buffers whose size was guessed, which may therefore be larger than the answer."""
    facts: dict[str, Any]
    """What the report says about how it came about."""

    @property
    def declaration(self) -> Exact:
        """How outputs are compared."""
        return Exact(tolerance=Elementwise(self.tolerances.atol, self.tolerances.rtol))


def prepare(request: Request, library: Path | None, device: str) -> Prepared:
    """Load the reference and decide the arguments.

    Raises:
        UsageError: the files and values do not fit each other.
    """
    # the reference may draw something when it is imported, or in shapes()
    torch.manual_seed(request.seed)
    reference = Reference.load(request.ref)
    tolerances = tolerances_of(reference, request.atol, request.rtol)
    facts: dict[str, Any] = {"device": device, "tolerances": asdict(tolerances)}
    inferred: frozenset[str] = frozenset()
    if library is not None:
        signature = signature_of(request)
        scalars = scalars_of(request, signature)
        told = reference.shapes({**_values(request), **scalars})
        sizes = infer_sizes(signature, scalars, told, request.ptr_size)
        facts |= {"buffers": sizes.describe(), "buffers_from": sizes.how}
        inferred = sizes.inferred
        solution: Solution = LibrarySolution(library, signature, scalars, sizes, device)
        told_otherwise = {each.name for each in signature.parameters}
    else:
        solution = ModuleSolution(request.solution, _values(request), device)
        told_otherwise = set()
    extra = accepted(reference.function, _values(request))
    extra = {name: value for name, value in extra.items() if name not in told_otherwise}
    return Prepared(reference, tolerances, solution, extra, inferred, facts)


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
    advice = {
        Language.TRITON: "; a file that only uses torch runs here with --implementation=torch, and with"
        " --device=cpu Triton's interpreter verifies it, untimed",
    }.get(request.language, "")
    raise UnavailableError(f"{entry.backend} needs a CUDA device, and torch finds none here{advice}")


def _values(request: Request) -> dict[str, Any]:
    return {name: number(text) for name, text in request.values.items()}
