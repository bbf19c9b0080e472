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
from kernelmark.models.tuning.book import STATE_FILE, Book, Phase, State, read_state
from kernelmark.models.tuning.judging import ProcessJudge
from kernelmark.models.tuning.search import CONFIRMATION, RUNGS, Fate, Outcome, Search
from kernelmark.models.tuning.space import DEFAULT, Candidate, Space, make_space, write_descriptor
from kernelmark.records import RECORDS_FILE, Check, Note, NoteKind, Role, Row, RunHeader, read_run
from kernelmark.report import write_reports
from kernelmark.report.notes import note_text
from kernelmark.report.plain import one_line
from torchsched.bindings import bindings
from torchsched.descriptors import Schedule, find_schedule
from torchsched.descriptors.parameters import written
from torchsched.descriptors.passes import check_passes
from torchsched.targets import Target

__all__ = ["Found", "Line", "summarise_search", "tune_model", "verdict"]


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
        kinds = Counter(self._kind(line.candidate.label) for line in self.lines)
        return {"tried": len(self.lines), **dict(sorted(kinds.items()))}

    def _kind(self, label: str) -> str:
        checked, drop = self.outcome.checked[label], self.outcome.race.dropped.get(label)
        if checked.check is Check.FAILED:
            return "failed"
        if "same" in checked.params:
            return "same_code"
        return "failed_later" if drop is not None and drop.fate is Fate.FAILED else "right"


def tune_model(
    request: TuneRequest, *, command: Sequence[str] = (), tell: Callable[[str], None] = lambda line: None
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
    case_id, book, header = request.model.case_id, *_open_book(request, question, command)
    # a search that has ended is asked the same again
    count = book.state.candidates if book.session.closed else request.candidates
    candidates = question.space.candidates(count, seed=request.seed)
    for note in question.target.notes:
        tell(note)
    searched = ", ".join(axis.name for axis in question.space.axes)
    tell(f"{len(candidates)} of {question.space.size} candidates: {searched}")
    outcome_mark = "completed"
    try:
        with ProcessJudge(request, header) as judge:
            outcome = Search(case_id, candidates, request.budget_s, judge, book, tell).carry_out()
        lines = summarise_search(case_id, candidates, outcome, book)
        if not book.session.closed:
            book.record([line.row for line in lines], Phase.SUMMARY)
            if not outcome.in_time:
                book.session.suspend()  # more time can be given to it
        best = next(each for each in candidates if each.label == outcome.race.incumbent)
        found = Found(lines, best, outcome, question.space.size, request.folder, request.descriptor)
        provenance = _provenance(request, question, found, header)
        write_descriptor(request.descriptor, question.schedule, found.chosen.values, provenance)
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
    schedule: Schedule
    space: Space
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
        steps = repr([step.name for step in schedule.written]).encode()
        facts = {
            "the model": f"{asked.name} ({_digest(asked.path.read_bytes())})",
            "the inputs": ", ".join(types_of(loaded.inputs).values()),
            "the arguments": ", ".join(map(repr, loaded.init_args)) or "none",
            "the seed of the inputs": str(asked.seed),
            "the schedule": f"{schedule.name} ({_digest(steps)})",
            "the element type": str(element),
            "the target": str(target),
            "the caches": asked.cache.value,
            "the tolerance": figure(policy_for(asked.tolerance, element).for_dtype(element.torch).rule),
        }
        space = make_space(schedule, search=request.search, held=tuple(asked.values))
        return cls(target, schedule, space, facts)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _open_book(request: TuneRequest, question: _Question, command: Sequence[str]) -> tuple[Book, RunHeader]:
    """Begin the book of a search, or open the one that is gone on with; give the header of its run too."""
    folder, held = request.folder, request.folder / RECORDS_FILE
    rungs = ", ".join(f"{rung.blocks} blocks of up to {rung.max_count} samples" for rung in RUNGS)
    options = SessionOptions(
        device="cpu",
        cache=request.model.cache,
        budget=CONFIRMATION,
        out=folder,
        ceilings=False,
        # a header holds one protocol
        notes=(f"the protocol is that of the confirmation; the runs of the race are shorter: {rungs}",),
    )
    session = Session(options, command=tuple(command))
    here = environment()
    facts = {
        **question.facts,
        "the processor": session.device.describe().name,
        "kernelmark": here.kernelmark,
        **{name: here.libraries[name] for name in ("torch", "torch-mlir") if name in here.libraries},
        "the seed of the order": str(request.seed),
        **{
            f"the values of {axis.name}": ", ".join(map(written, axis.values)) for axis in question.space.axes
        },
    }
    state = State(question=facts)
    if request.resume:
        state = read_state(folder)
        state.require_same(facts, folder)
        if held.exists():
            session = Session.of(read_run(held), options)
    elif held.exists() or (folder / STATE_FILE).exists():
        raise UsageError(f"{folder} holds a run already; --resume goes on with it, or give another --out")
    if not session.closed:
        state.candidates = request.candidates
        state.write(folder)
    return Book(session, state, folder), session.start()


def _provenance(request: TuneRequest, question: _Question, found: Found, header: RunHeader) -> dict[str, Any]:
    """Say where the values come from, in plain values."""
    ratio, arguments = found.outcome.confirmation, question.facts["the arguments"]
    provenance: dict[str, Any] = {
        "made": now(),
        "with": {
            "kernelmark": header.environment.kernelmark,
            "python": header.environment.python,
            **header.environment.libraries,
        },
        "machine": header.device.name,
        "target": str(question.target),
        "model": request.model.path.name,
        "inputs": question.facts["the inputs"],
        **({} if arguments == "none" else {"init_args": arguments}),
        "dtype": question.facts["the element type"],
        "cache": request.model.cache.value,
        "candidates": {**found.counts, "of": found.size},
        "seed": request.seed,
        "run": header.run,
    }
    if ratio is not None:
        ends = {"value": ratio.value, "low": ratio.low, "high": ratio.high}
        provenance["ratio_to_default"] = {
            "of": found.best.label,
            **{name: None if end is None else round(end, 4) for name, end in ends.items()},
            "confidence": ratio.confidence,
            "verdict": ratio.verdict,
        }
    if not found.outcome.confirmed:
        provenance["kept"] = "the default parameters: nothing was certainly faster"
    return provenance


# --- what became of the candidates ----------------------------------------------------------------------


def summarise_search(
    case_id: str, candidates: Sequence[Candidate], outcome: Outcome, book: Book
) -> tuple[Line, ...]:
    """Give a line for each candidate that was tried, in the order of the candidates.

    Where the time was up, the case's name says after how long: there may be another table when the search goes on.

    A row's ratio is the candidate's time over the default's in the last run that both were in; for the winner it is
    the flattering one of the search, and not the confirmed one.
    """
    standings, lines = book.standings(), list[Line]()
    so_far = "" if outcome.in_time else f" after {book.state.spent_s:.0f} s"
    common = {"case": f"{case_id}: candidates{so_far}", "params": {}, "traceback": None}
    for candidate in candidates:
        row = outcome.checked.get(candidate.label)
        if row is None:
            continue
        end = _end(candidate, row, outcome)
        fate = note_text(row.note if end is None else end)
        if end is None:  # in no more letters than the table has room for; all of it is in the records
            fate = one_line(fate)
            fate = fate if len(fate) <= 200 else f"{fate[:200]}..."
        elif (standing := standings.get(candidate.label)) is not None:
            row = _without_samples(standing)
        role, notes = Role.BASELINE if candidate.number else Role.OURS, () if end is None else (end,)
        row = row.model_copy(update={**common, "role": role, "notes": notes})
        lines.append(Line(candidate, row, fate))
    return tuple(lines)


def _without_samples(row: Row) -> Row:
    """Leave out what stands in the rows of the race, once."""
    timing = row.timing and row.timing.model_copy(update={"passes": (), "notes": ()})
    ratio = row.ratio and row.ratio.model_copy(update={"block_ratios": ()})
    return row.model_copy(update={"timing": timing, "ratio": ratio, "controls": ()})


def _end(candidate: Candidate, checked: Row, outcome: Outcome) -> Note | None:
    """Give what became of a candidate that was right; ``None`` for one that was not."""
    label, winner, rung = candidate.label, outcome.race.incumbent, None
    if checked.check is Check.FAILED:
        return None
    if "same" in checked.params:
        return Note.of(NoteKind.SAME_CODE, candidate=str(checked.params["same"]))
    if label == DEFAULT:
        fate = "the default" if winner != DEFAULT and outcome.confirmed else "the default, and kept"
    elif label == winner:
        fate = "the winner, confirmed" if outcome.confirmed else "the winner of the race, not confirmed"
    elif (drop := outcome.race.dropped.get(label)) is not None:
        fate, rung = drop.fate.value, drop.rung
    else:
        fate = "not certainly slower than the winner, nor faster"
    return Note.of(NoteKind.CANDIDATE, fate=fate, rung=rung)


def verdict(found: Found) -> str:
    """Say in one or two sentences what the search came to."""
    ratio, best, kept = found.outcome.confirmation, found.best.label, "the default parameters are kept"
    shown = "" if ratio is None else f"{ratio.value:.3f}"
    if ratio is not None and ratio.low is not None:
        shown += f" [{ratio.low:.3f}, {ratio.high:.3f}]"
    if best == DEFAULT:
        told = "Nothing was certainly faster than the default parameters; they are kept."
    elif ratio is None:
        why = found.outcome.trouble.splitlines()[0]
        told = f"{best} won the race and could not be confirmed ({why}); {kept}."
    elif found.outcome.confirmed:
        told = f"{best} is {shown} times as fast as the default, measured apart from the search."
    else:
        told = (
            f"{best} won the race, and measured once more it was {shown} times as fast as the default, which is"
            f" not certainly faster; {kept}."
        )
    late = " The time was up before everything was tried; --resume goes on."
    return told if found.outcome.in_time else told + late
