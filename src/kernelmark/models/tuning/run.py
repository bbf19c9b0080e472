"""One search from the request to the descriptor and the table of candidates.

Prints nothing: what a user should see on the way is told to a function that is handed in.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmark.errors import ModelError, UsageError, VerificationError
from kernelmark.harness import Session, SessionOptions
from kernelmark.harness.provenance import environment, now
from kernelmark.models.case import load_asked, main_element, types_of
from kernelmark.models.request import TuneRequest, figure, policy_for
from kernelmark.models.tuning.book import STATE_FILE, Book, Phase, Standing, State, read_state
from kernelmark.models.tuning.judging import ProcessJudge
from kernelmark.models.tuning.search import CONFIRMATION, PROTOCOL_NOTE, Fate, Outcome, Search
from kernelmark.models.tuning.space import Candidate, Space, make_space, write_descriptor
from kernelmark.records import RECORDS_FILE, Check, Note, NoteKind, Role, Row, read_run
from kernelmark.report import write_reports
from kernelmark.report.notes import note_text
from kernelmark.report.plain import one_line
from torchsched.bindings import bindings
from torchsched.descriptors import Schedule, find_schedule
from torchsched.descriptors.parameters import written
from torchsched.descriptors.passes import check_passes
from torchsched.elements import Element
from torchsched.targets import Target

__all__ = ["Found", "Line", "summarise_search", "tune_model", "verdict"]

_DIGEST = 16


def tune_model(
    request: TuneRequest,
    *,
    command: Sequence[str] = (),
    tell: Callable[[str], None] = lambda line: None,
) -> Found:
    """Search the parameters of a schedule for a model, and write the best ones as a descriptor.

    Whatever ends it, what was judged is kept, and ``resume`` goes on with it.

    Args:
        request: What to search.
        command: The command line, for the record.
        tell: Gets lines for the user as things become known.

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
        with ProcessJudge(request, book.session.header) as judge:
            outcome = Search(
                request.model.case_id, candidates, request.budget_s, judge, book, tell
            ).carry_out()
        lines = summarise_search(request.model.case_id, candidates, outcome, book)
        if not book.session.closed:
            book.record([line.row for line in lines], Phase.SUMMARY)
            if not outcome.in_time:
                book.session.suspend()  # more time can be given to it
        best = candidates[outcome.race.incumbent]
        found = Found(lines, best, outcome, space.size, request.folder, request.descriptor)
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
        if (request.folder / RECORDS_FILE).exists():
            write_reports(request.folder)
    return found


@dataclass(frozen=True, slots=True)
class _Question:
    """What is searched, found out once."""

    target: Target
    element: Element
    schedule: Schedule
    facts: dict[str, str]

    @classmethod
    def of(cls, request: TuneRequest) -> _Question:
        asked = request.model
        target = asked.resolve_target()
        bindings("ir")  # where torch-mlir is missing, that is told before a model's file runs
        loaded = load_asked(asked)
        element = asked.element or main_element(loaded.model, loaded.inputs)
        schedule = find_schedule(asked.pipeline, element, target, roots=asked.roots, values=asked.values)
        check_passes(schedule.steps)
        rule = policy_for(asked.tolerance, element).for_dtype(element.torch).rule
        facts = {
            "the model": f"{asked.name} ({_digest(asked.path.read_bytes())})",
            "the inputs": ", ".join(types_of(loaded.inputs).values()),
            "the arguments": ", ".join(map(repr, loaded.init_args)) or "none",
            "the seed of the inputs": str(asked.seed),
            "the schedule": f"{schedule.name} ({_digest(repr([s.name for s in schedule.written]).encode())})",
            "the element type": str(element),
            "the target": str(target),
            "the caches": asked.cache.value,
            "the tolerance": figure(rule),
        }
        return cls(target, element, schedule, facts)


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
    asked, ratio = request.model, found.outcome.confirmation
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
        "inputs": question.facts["the inputs"],
        **({} if (arguments := question.facts["the arguments"]) == "none" else {"init_args": arguments}),
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


@dataclass(frozen=True, slots=True)
class Line:
    """One candidate that was tried."""

    candidate: Candidate
    row: Row
    """Its last time and its ratio to the default, as far as it came."""
    fate: str
    """What became of it, in words."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one search found."""

    lines: tuple[Line, ...]
    best: Candidate
    """What won the race; the default, where nothing was certainly faster."""
    outcome: Outcome
    size: int
    """How many there are in the space."""
    folder: Path
    descriptor: Path

    @property
    def chosen(self) -> Candidate:
        """What the descriptor holds: the best one, if it was confirmed."""
        return self.best if self.outcome.confirmed else self.lines[0].candidate

    @property
    def counts(self) -> dict[str, int]:
        """How many candidates had which kind of end."""
        kinds = Counter(self._kind(line.candidate) for line in self.lines)
        return {"tried": len(self.lines), **dict(sorted(kinds.items()))}

    def _kind(self, candidate: Candidate) -> str:
        checked = self.outcome.checked[candidate.label]
        if checked.check is Check.FAILED:
            return "failed"
        if "same" in checked.params:
            return "same_code"
        drop = self.outcome.race.dropped.get(candidate.number)
        return "failed_later" if drop is not None and drop.fate is Fate.FAILED else "right"


def summarise_search(
    case_id: str, candidates: Sequence[Candidate], outcome: Outcome, book: Book
) -> tuple[Line, ...]:
    """Give a line for each candidate that was tried, in the order of the candidates.

    Where the time was up, the case's name says after how long: there may be another table when the search goes on.

    A row's ratio is the candidate's time over the default's in the last run that both were in; for the winner it is
    the flattering one of the search, and not the confirmed one.
    """
    standings = book.standings()
    so_far = "" if outcome.in_time else f" after {book.state.spent_s:.0f} s"
    case_id, lines = f"{case_id}: candidates{so_far}", []
    for candidate in candidates:
        checked = outcome.checked.get(candidate.label)
        if checked is not None:
            end = _end(candidate, checked, outcome)
            row = _row(case_id, candidate, checked, standings.get(candidate.label), end)
            lines.append(Line(candidate, row, _told(checked) if end is None else note_text(end)))
    return tuple(lines)


def verdict(found: Found) -> str:
    """Say in one or two sentences what the search came to."""
    ratio, best = found.outcome.confirmation, found.best
    hurried = (
        "" if found.outcome.in_time else " The time was up before everything was tried; --resume goes on."
    )
    if best.number == 0:
        return f"Nothing was certainly faster than the default parameters; they are kept.{hurried}"
    if ratio is None:
        return (
            f"{best.label} won the race and could not be confirmed ({found.outcome.trouble.splitlines()[0]});"
            f" the default parameters are kept.{hurried}"
        )
    shown = f"{ratio.value:.3f}" + (f" [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio.low is not None else "")
    if not found.outcome.confirmed:
        return (
            f"{best.label} won the race, and measured once more it was {shown} times as fast as the default, which is"
            f" not certainly faster; the default parameters are kept.{hurried}"
        )
    return f"{best.label} is {shown} times as fast as the default, measured apart from the search.{hurried}"


def _row(
    case_id: str, candidate: Candidate, checked: Row, standing: Standing | None, end: Note | None
) -> Row:
    common = {
        "case": case_id,
        "role": Role.OURS if candidate.number == 0 else Role.BASELINE,
        "params": {},
        "traceback": None,
        "notes": () if end is None else (end,),
    }
    if standing is None or end is None:
        return checked.model_copy(update=common)
    timing, ratio = standing.row.timing, standing.to_default
    # the samples stand in the rows of the race, once
    short = None if timing is None else timing.model_copy(update={"passes": (), "notes": ()})
    blockless = None if ratio is None else ratio.model_copy(update={"block_ratios": ()})
    return standing.row.model_copy(update={**common, "timing": short, "ratio": blockless, "controls": ()})


def _told(failed: Row) -> str:
    """Say why one failed in no more letters than the table has room for; all of it is in the records."""
    note = one_line(note_text(failed.note))
    return note if len(note) <= 200 else f"{note[:200]}..."


def _end(candidate: Candidate, checked: Row, outcome: Outcome) -> Note | None:
    """Give what became of a candidate that was right; ``None`` for one that was not."""
    race, rung = outcome.race, None
    drop = race.dropped.get(candidate.number)
    if checked.check is Check.FAILED:
        return None
    if candidate.number == 0:
        fate = "the default" if race.incumbent and outcome.confirmed else "the default, and kept"
    elif candidate.number == race.incumbent:
        fate = "the winner, confirmed" if outcome.confirmed else "the winner of the race, not confirmed"
    elif "same" in checked.params:
        return Note.of(NoteKind.SAME_CODE, candidate=str(checked.params["same"]))
    elif drop is not None:
        fate, rung = drop.fate.value, drop.rung
    else:
        fate = "not certainly slower than the winner, nor faster"
    return Note.of(NoteKind.CANDIDATE, fate=fate, rung=rung)
