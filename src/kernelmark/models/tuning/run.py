"""One search from the request to the descriptor: the model's types, the space, the run's folder, the judge.

Prints nothing: what a user should see on the way is told to a function that is handed in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmark.errors import ModelError, UsageError, VerificationError
from kernelmark.harness import Session, SessionOptions
from kernelmark.harness.provenance import environment, now
from kernelmark.models.case import main_element, types_of
from kernelmark.models.tolerances import figure, policy_for
from kernelmark.models.tuning.book import Book, Phase
from kernelmark.models.tuning.descriptor import write_descriptor
from kernelmark.models.tuning.found import Found, summarise_search
from kernelmark.models.tuning.judging import ProcessJudge
from kernelmark.models.tuning.racing import CONFIRMATION, PROTOCOL_NOTE
from kernelmark.models.tuning.request import TuneRequest
from kernelmark.models.tuning.search import Search
from kernelmark.models.tuning.space import Space, make_space
from kernelmark.models.tuning.state import STATE_FILE, State, read_state
from kernelmark.records import RECORDS_FILE, read_run
from torchsched.bindings import bindings
from torchsched.descriptors import Schedule, find_schedule
from torchsched.descriptors.parameters import written
from torchsched.descriptors.passes import check_passes
from torchsched.elements import Element
from torchsched.ingress import load_model
from torchsched.targets import Target

__all__ = ["tune_model"]

_DIGEST = 16

MakeJudge = Callable[[TuneRequest, Element, Any], ProcessJudge]


def tune_model(
    request: TuneRequest,
    *,
    command: Sequence[str] = (),
    tell: Callable[[str], None] = lambda line: None,
    make_judge: MakeJudge = ProcessJudge,
) -> Found:
    """Search the parameters of a schedule for a model, and write the best ones as a descriptor.

    Whatever ends it, what was judged is kept, and ``resume`` goes on with it.

    Args:
        request: What to search.
        command: The command line, for the record.
        tell: Gets lines for the user as things become known.
        make_judge: Makes what checks and measures.

    Raises:
        UsageError: the request, the model's file or the schedule do not fit each other; nothing was run.
        UnavailableError: this machine lacks torch-mlir, or what the code would need.
        VerificationError: the default parameters give a wrong answer, or crash.
        ModelError: the default parameters do not get through the compiler.
        TimingError: the instrument cannot vouch for a reading.
    """
    question = _Question.of(request)
    space = make_space(question.schedule, search=request.search, held=tuple(request.model.values))
    book = _open_book(request, question, space, command)
    # a search that has ended is asked the same again
    count = book.state.candidates if book.session.closed else request.candidates
    candidates = space.candidates(count, seed=request.seed)
    for note in question.target.notes:
        tell(note)
    tell(f"{len(candidates)} of {space.size} candidates: {', '.join(axis.name for axis in space.axes)}")
    outcome_mark = "completed"
    try:
        assert book.session.header is not None
        with make_judge(request, question.element, book.session.header) as judge:
            outcome = Search(
                request.model.case_id, candidates, request.budget_s, judge, book, tell
            ).carry_out()
        lines = summarise_search(request.model.case_id, candidates, outcome, book)
        if not book.session.closed:
            book.record([line.row for line in lines], Phase.SUMMARY)
            if not outcome.in_time:
                book.session.suspend()  # more time can be given to it
        best = candidates[outcome.race.incumbent]
        found = Found(lines, best, outcome, len(candidates), space.size, request.folder, request.descriptor)
        write_descriptor(
            request.descriptor,
            question.schedule,
            found.chosen.values,
            _provenance(request, question, found, book),
        )
    except (ModelError, VerificationError):
        outcome_mark = "failed"
        raise
    except BaseException:
        book.session.suspend()
        if book.state.spent_s:
            tell(f"what was judged is kept; --resume --out {request.folder} goes on")
        raise
    finally:
        book.session.close(outcome_mark)
        _write_reports(request.folder)
    return found


@dataclass(frozen=True, slots=True)
class _Question:
    """What is searched, found out once."""

    target: Target
    element: Element
    schedule: Schedule
    inputs: str
    arguments: str
    facts: dict[str, str]

    @classmethod
    def of(cls, request: TuneRequest) -> _Question:
        asked = request.model
        target = asked.resolve_target()
        bindings("ir")  # where torch-mlir is missing, that is told before a model's file runs
        loaded = load_model(
            asked.path, inputs=asked.inputs, init_args=asked.init_args, element=asked.element, seed=asked.seed
        )
        element = asked.element or main_element(loaded.model, loaded.inputs)
        schedule = find_schedule(asked.pipeline, element, target, roots=asked.roots, values=asked.values)
        check_passes(schedule.steps)
        rule = policy_for(asked.tolerance, element).for_dtype(element.torch).rule
        inputs = ", ".join(types_of(loaded.inputs).values())
        arguments = ", ".join(map(repr, loaded.init_args))
        facts = {
            "the model": f"{asked.name} ({_digest(asked.path.read_bytes())})",
            "the inputs": inputs,
            "the arguments": arguments or "none",
            "the seed of the inputs": str(asked.seed),
            "the schedule": f"{schedule.name} ({_digest(repr([s.name for s in schedule.written]).encode())})",
            "the element type": str(element),
            "the target": str(target),
            "the caches": asked.cache.value,
            "the tolerance": figure(rule),
        }
        return cls(target, element, schedule, inputs, arguments, facts)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGEST]


def _open_book(request: TuneRequest, question: _Question, space: Space, command: Sequence[str]) -> Book:
    folder, held = request.folder, request.folder / RECORDS_FILE
    options = SessionOptions(
        device="cpu",
        cache=request.model.cache,
        budget=CONFIRMATION,
        out=folder,
        ceilings=False,
        notes=(PROTOCOL_NOTE,),
    )
    session = Session(options, command=tuple(command))
    here = environment()
    facts = {
        **question.facts,
        "the processor": session.device.describe().name,
        "kernelmark": here.kernelmark,
        **{name: here.libraries[name] for name in ("torch", "torch-mlir") if name in here.libraries},
        "the seed of the order": str(request.seed),
        **{f"the values of {axis.name}": ", ".join(map(written, axis.values)) for axis in space.axes},
    }
    if request.resume:
        state = read_state(folder)
        state.require_same(facts, folder)
        if held.exists():
            session = Session.of(read_run(held), options)
    elif held.exists() or (folder / STATE_FILE).exists():
        raise UsageError(f"{folder} holds a run already; --resume goes on with it, or give another --out")
    else:
        state = State(facts)
    if not session.closed:
        state.candidates = request.candidates
        state.write(folder)
        session.start()
    return Book(session, state, folder)


def _provenance(request: TuneRequest, question: _Question, found: Found, book: Book) -> dict[str, Any]:
    """Say where the values come from, in plain values."""
    header = book.session.header
    assert header is not None
    asked, ratio = request.model, found.ratio
    provenance: dict[str, Any] = {
        "made": now(),
        "with": {
            "kernelmark": header.environment.kernelmark,
            "python": header.environment.python,
            **header.environment.libraries,
        },
        "machine": header.device.name,
        "target": str(question.target),
        "model": asked.path.name,
        "inputs": question.inputs,
        **({"init_args": question.arguments} if question.arguments else {}),
        "dtype": str(question.element),
        "cache": asked.cache.value,
        "candidates": {**found.counts, "of": found.size},
        "seed": request.seed,
        "run": header.run,
    }
    if ratio is not None:
        provenance["ratio_to_default"] = {
            "of": found.best.label,
            "value": round(ratio.value, 4),
            "low": None if ratio.low is None else round(ratio.low, 4),
            "high": None if ratio.high is None else round(ratio.high, 4),
            "confidence": ratio.confidence,
            "verdict": ratio.verdict,
        }
    if not found.outcome.confirmed:
        provenance["kept"] = "the default parameters: nothing was certainly faster"
    return provenance


def _write_reports(folder: Path) -> None:
    from kernelmark.report import write_reports

    if (folder / RECORDS_FILE).exists():
        write_reports(folder)
