"""The process in which a solution runs: loads, checks and times, and leaves records and an outcome in a folder.

Its outer frame turns whatever happens into the outcome. It prints nothing of its own and writes no report:
statistics, verdict and report are the parent's.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import traceback as tracebacks
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from kernelmark.errors import KernelmarkError, UnavailableError, UsageError
from kernelmark.harness import Session, SessionOptions, run_plan, use_session
from kernelmark.kernelfile.arguments import scalars_of, signature_of
from kernelmark.kernelfile.ctype import number
from kernelmark.kernelfile.handover import FACTS, OUTCOME, READY, Outcome
from kernelmark.kernelfile.languages import LANGUAGES, Language, LanguageEntry
from kernelmark.kernelfile.request import SOLUTION, Request
from kernelmark.timing import Budget, open_timer

__all__ = ["budget_of", "timer_for", "work"]

_BLOCKS = 10


def work(request: Request, library: Path | None, scratch: Path) -> Outcome:
    """Carry out ``request``; the rows go to the run in ``scratch``, and so does the outcome."""
    notes: dict[str, list[str]] = {}
    try:
        _work(request, library, scratch, notes)
        outcome = Outcome(notes=notes)
    except BaseException as error:  # the outermost frame: everything becomes the outcome
        if isinstance(error, KeyboardInterrupt):
            raise
        text = "".join(tracebacks.format_exception(error))
        outcome = Outcome(type(error).__name__, _message(error), text, notes)
    _write(scratch / OUTCOME, asdict(outcome))
    return outcome


def _work(request: Request, library: Path | None, scratch: Path, notes: dict[str, list[str]]) -> None:
    entry = LANGUAGES[request.language]
    interpreted = request.language is Language.TRITON and request.device == "cpu"
    device = _device(request, entry, interpreted=interpreted)
    timer = timer_for(request, device)
    session = Session(
        SessionOptions(
            device=device,
            timer=timer,
            verify_only=interpreted,
            cache=request.cache,
            budget=budget_of(request),
            out=scratch,
            ceilings=False,
        )
    )
    with use_session(session):
        # everything a reading rests on is loaded and taken hold of before any file of the user's is
        open_timer(timer, session.device)
        session.start()
        (scratch / READY).touch()
        try:
            _compare(request, library, scratch, session, notes)
        finally:
            session.close()


def _compare(
    request: Request, library: Path | None, scratch: Path, session: Session, notes: dict[str, list[str]]
) -> None:
    from kernelmark.kernelfile.binding import bind
    from kernelmark.kernelfile.buffers import infer_sizes
    from kernelmark.kernelfile.reference import Reference, tolerances_of
    from kernelmark.kernelfile.solutions import LibrarySolution, ModuleSolution

    device = session.device.torch_name
    facts: dict[str, Any] = {"device": device, "timer": session.timer_name}
    reference = Reference.load(request.ref)
    tolerances = tolerances_of(reference, request.atol, request.rtol)
    facts["tolerances"] = asdict(tolerances)
    inferred: frozenset[str] = frozenset()
    if library is not None:
        signature = signature_of(request)
        scalars = scalars_of(request, signature)
        sizes = infer_sizes(signature, scalars, reference.shapes(scalars), request.ptr_size)
        facts |= {"buffers": sizes.describe(), "buffers_from": sizes.how}
        inferred = sizes.inferred
        solution: Any = LibrarySolution(library, signature, scalars, sizes, device)
        names = {each.name for each in signature.parameters}
    else:
        solution = ModuleSolution(request.solution, _values(request), device)
        names = set()
    _write(scratch / FACTS, facts)
    extra = _only_for_the_reference(request, reference.function, names)
    bound = bind(request, solution, reference, tolerances=tolerances, extra=extra, inferred=inferred)
    notes |= bound.notes
    if session.options.verify_only:
        notes.setdefault(SOLUTION, []).append(
            "checked in Triton's interpreter on the CPU; the interpreter's time says nothing, so none is given"
        )
    if bound.compiled is not None:
        bound.compiled.start()
    try:
        run_plan(bound.plan, session)
    finally:
        told = bound.compiled.note() if bound.compiled is not None else None
        if told:
            notes["torch-compile"] = [told]


def budget_of(request: Request) -> Budget:
    """Give the exact counts that were asked for; a round whose reading is not kept is one more warm-up round."""
    return replace(
        Budget(blocks=_BLOCKS),
        min_count=request.num_trials,
        max_count=request.num_trials,
        warmup_count=request.num_warmup + request.discard_first,
    )


def timer_for(request: Request, device: str) -> str | None:
    """Choose the instrument: the one asked for, events on CUDA devices, elsewhere the device's own."""
    return request.timer or ("device_events" if device.startswith("cuda") else None)


def _device(request: Request, entry: LanguageEntry, *, interpreted: bool) -> str:
    if entry.runs_on == "cpu" or interpreted:
        if request.device not in ("auto", "cpu"):
            raise UsageError(f"--device={request.device}: {entry.backend} runs on the CPU")
        return "cpu"
    if entry.runs_on == "any" and request.device != "auto":
        return request.device
    import torch

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


def _only_for_the_reference(
    request: Request, function: Callable[..., Any], known: set[str]
) -> dict[str, Any]:
    import inspect

    explicit = inspect.signature(function).parameters
    values = _values(request)
    return {
        name: value for name, value in values.items() if name not in known and (name in explicit or known)
    }


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r})"
    if isinstance(error, KernelmarkError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _write(path: Path, value: Any) -> None:
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(value), encoding="utf-8")
    draft.replace(path)


def _main(arguments: list[str]) -> None:
    faulthandler.enable()
    scratch = Path(arguments[0])
    told = json.loads((scratch / "request.json").read_text(encoding="utf-8"))
    library = Path(told["library"]) if told["library"] else None
    work(Request.from_json(told["request"]), library, scratch)
    with suppress(OSError):
        sys.stdout.flush()


if __name__ == "__main__":
    _main(sys.argv[1:])
