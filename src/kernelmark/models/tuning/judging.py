"""Judges candidates in workers that can be ended: one for each job, with limits of time.

A worker loads the model once, compiles candidates, and lets the engine check or time them. It may hang or die at any
candidate: what it has told says how far it came, and another one is asked for the rest.
"""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kernelmark.errors import CrashedError, KernelmarkError, ModelError, VerificationError
from kernelmark.harness import Session, SessionOptions
from kernelmark.isolation import Channel, Ended, Limits, Start, Worker
from kernelmark.models import case as cases
from kernelmark.models.compilers import bound_code, build_options, facts_of_code
from kernelmark.models.request import ModelRequest, TuneRequest, packed, unpacked
from kernelmark.models.run import settled
from kernelmark.models.state import State
from kernelmark.models.tuning.space import Candidate
from kernelmark.records import Check, Note, NoteKind, Role, Row, RunHeader
from kernelmark.text import message_of
from kernelmark.timing import Budget
from torchsched.building import Built, build
from torchsched.failures import Stage
from torchsched.targets import Target

__all__ = ["MEASURE", "Measured", "ProcessJudge", "TuneJob", "carry_out"]

MEASURE = "measure"
"""The stage of a worker in which everything is compiled, and timed."""


@dataclass(frozen=True, slots=True)
class TuneJob:
    """Compile each candidate and check its answer; with a budget, compile all and time them in one interleaved run."""

    request: ModelRequest
    header: RunHeader
    case_id: str
    candidates: tuple[Candidate, ...]
    """Where they are timed, the first is what the others are compared with."""
    limit_s: float
    """Seconds that one of them may take to be compiled and checked."""
    known: Mapping[str, str] = field(default_factory=dict)
    """Digest of code that has been checked → the label of the candidate that has it."""
    budget: Budget | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What a report says of a run that is timed."""


_TARGET = "kernelmark.models.tuning.judging:carry_out"
_PRELOAD = ("torch._dynamo", "torch_mlir.fx", "kernelmark.models.tuning.judging")
_START_UP_S = 120.0
"""Loading a model and its first import took 3 s here; a model of a billion parameters takes a minute to fill."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run of several contestants gave."""

    rows: tuple[Row, ...]
    """Empty where the process died; with failed rows where an answer was wrong, and then none has a time."""
    death: str = ""
    """How the process died, in words; blank for one that ended in order."""
    at: str | None = None
    """The label of the candidate that it died of, where that is known."""


class ProcessJudge:
    """Says whether candidates are right, and how long they take; use it in a ``with`` block.

    Args:
        request: What is searched.
        header: The run that the rows belong to.

    Attributes:
        limit_s: Seconds that one candidate may take to be compiled and checked.
    """

    def __init__(self, request: TuneRequest, header: RunHeader) -> None:
        self._request, self._header = request, header
        self.limit_s = request.limit_s
        self._worker: Worker[None] = Worker(_TARGET, Limits(None), start=Start.FORK, preload=_PRELOAD)

    def __enter__(self) -> ProcessJudge:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.close()

    def check(
        self, case_id: str, candidates: Sequence[Candidate], known: Mapping[str, str]
    ) -> tuple[Row, ...]:
        """Compile and check: gives a row for each candidate that one worker came to, at least one.

        Raises:
            KernelmarkError: the model itself cannot be used, so that no candidate could.
            CrashedError: the process died before it came to a candidate.
        """
        ended = self._run(case_id, candidates, known=known)
        if ended.failure is not None:
            raise ended.failure.error
        rows = _rows(ended)
        if ended.death is None or len(rows) == len(candidates):
            return rows
        culprit = candidates[len(rows)]
        if _at(ended) != culprit.label:
            raise CrashedError(f"no candidate was come to: {self._death(ended)}")
        died = Row(
            case=case_id,
            implementation=culprit.label,
            role=Role.OURS,
            check=Check.FAILED,
            note=Note.of(NoteKind.FAILED_AT, stage=ended.stage, text=self._death(ended)),
            params={"stage": ended.stage, "died": True},
            seed=self._request.model.seed,
        )
        return (*rows, died)

    def measure(
        self, case_id: str, contestants: Sequence[Candidate], budget: Budget, facts: Mapping[str, Any]
    ) -> Measured:
        """Time the contestants in one interleaved run; the first is what the others are compared with.

        Raises:
            TimingError: the instrument cannot vouch for a reading.
        """
        ended = self._run(case_id, contestants, budget=budget, facts=facts)
        error = ended.failure.error if ended.failure is not None else None
        if isinstance(error, ModelError):
            return Measured((), str(error), _at(ended))
        if error is not None and not (isinstance(error, VerificationError) and _rows(ended)):
            raise error
        if ended.death is None:
            return Measured(_rows(ended))
        at = None if ended.stage == MEASURE else _at(ended)
        return Measured((), f"{ended.stage or 'load'}: {self._death(ended)}", at)

    def _run(self, case_id: str, candidates: Sequence[Candidate], **more: Any) -> Ended[None]:
        job = TuneJob(self._request.model, self._header, case_id, tuple(candidates), self.limit_s, **more)
        # a measurement is given as long again as compiling was: its calls have no other limit
        limits = Limits(_START_UP_S + 2 * self.limit_s * len(candidates))
        return self._worker.call(packed(job), limits=limits)

    def _death(self, ended: Ended[None]) -> str:
        """Say how a worker died, and what it wrote last."""
        limit_s = self.limit_s if ended.stage not in ("", MEASURE) else ended.wall_s
        timed_out = ended.death is not None and ended.death.timed_out
        told = (
            f"it did not end within {limit_s:.3g} s; --limit gives it more" if timed_out else str(ended.death)
        )
        return "\n".join(filter(None, [told, ended.errors.strip() or ended.output.strip()]))


def _rows(ended: Ended[None]) -> tuple[Row, ...]:
    return tuple(Row.model_validate(each["row"]) for each in ended.told if "row" in each)


def _at(ended: Ended[None]) -> str | None:
    """Give the label of the candidate that a worker was at last."""
    return next((each["candidate"] for each in reversed(ended.told) if "candidate" in each), None)


# --- in the worker ------------------------------------------------------------------------------------


def carry_out(job: str, channel: Channel) -> None:
    """Carry out a packed :class:`TuneJob`; rows are handed over as they are made."""
    asked: TuneJob = unpacked(job)
    target = asked.request.resolve_target()
    with torch.no_grad(), settled(target) as malloc, cases.told_of_memory(asked.request.name):
        shop = _Shop(asked, channel, target, cases.load_subject(asked.request), malloc)
        if asked.budget is None:
            shop.check_all()
        else:
            shop.measure()


@dataclass(slots=True)
class _Shop:
    """One model, loaded, and what is made of it."""

    job: TuneJob
    channel: Channel
    target: Target
    subject: cases.Subject
    malloc: Mapping[str, str]
    reached: Stage = Stage.IMPORT
    """The last stage of the candidate that it is at."""
    ends_s: float = 0.0
    """When that candidate's time is up."""

    def enter(self, stage: Stage) -> None:
        """Tell that a stage begins, in what is left of the candidate's time."""
        self.reached = stage
        self.channel.stage(stage, limit_s=max(0.0, self.ends_s - time.monotonic()))

    def build(self, candidate: Candidate) -> Built:
        """Compile the model with a candidate's values; that it begins, and each of its stages, is told."""
        self.channel.tell({"candidate": candidate.label})
        self.reached, self.ends_s = Stage.IMPORT, time.monotonic() + self.job.limit_s
        options = build_options(self.job.request, self.target, candidate.values)
        options = replace(options, element=self.subject.element)
        return build(self.subject.model, self.subject.state.inputs, options, on_stage=self.enter)

    def facts(self, more: Mapping[str, Any] = {}) -> dict[str, Any]:
        """Give what a report says."""
        return {**self.subject.facts(), **more, **self.malloc}

    def session(self) -> Session:
        """Take part in the run whose header the job has; without a budget, only check."""
        budget, cache = self.job.budget, self.job.request.cache
        options = SessionOptions(
            device="cpu", verify_only=budget is None, cache=cache, budget=budget, ceilings=False
        )
        return Session(options, header=self.job.header)

    def check_all(self) -> None:
        """Check each candidate; whatever goes wrong is its row."""
        known, (second, draws) = dict(self.job.known), cases.draw_twice(self.subject)
        for candidate in self.job.candidates:
            row = self._checked(candidate, known, second, draws)
            self.channel.tell({"row": row})
            if row.check.comparable:
                known.setdefault(str(row.params["code"]), candidate.label)

    def _checked(
        self, candidate: Candidate, known: Mapping[str, str], second: State | None, draws: str
    ) -> Row:
        subject, label = self.subject, candidate.label
        case = cases.make_case(subject, self.facts(), case_id=self.job.case_id)
        try:
            built = self.build(candidate)
            # what LLVM got, and for how many threads
            text = f"{built.compiled.threads}\n{built.compiled.llvm_module}"
            code = hashlib.sha256(text.encode()).hexdigest()[:16]
            facts = {"code": code, "threads": built.compiled.threads, "draws": draws}
            if (same := known.get(code)) is not None:
                note = Note.of(NoteKind.SAME_CODE, candidate=same)
                return cases.untimed_row(case, label, Check.VERIFIED, note, **facts, same=same)
            self.enter(Stage.RUN)
            contestant, facts = cases.Contestant(label, bound_code(built)), self.facts(facts)
            cases.check_on_second_draw(contestant, subject, second, facts)
            checked = cases.make_case(subject, facts, case_id=self.job.case_id)
            return cases.compare(checked, {label: contestant.bind(subject.state)}, self.session()).rows[0]
        except Exception as error:  # noqa: BLE001 - a compiler that breaks on a candidate is what was to be found out
            if isinstance(error, VerificationError) and error.comparison is not None:
                row = error.comparison.rows[0]
                return row.model_copy(update={"case": self.job.case_id, "note": Note.error(error)})
            at, note = str(self.reached), Note.error(error)
            if isinstance(error, ModelError):  # its message names the stage
                at = str(error.stage)
            else:
                note = Note.of(NoteKind.FAILED_AT, stage=at, text=message_of(error))
            own = isinstance(error, KernelmarkError)
            trace = None if own else "".join(traceback.format_exception(error))
            row = cases.untimed_row(case, label, Check.FAILED, note, stage=at)
            return row.model_copy(update={"traceback": trace})

    def measure(self) -> None:
        """Compile all candidates, and time them together."""
        state, codes, threads = self.subject.state, dict[str, object](), 1
        for candidate in self.job.candidates:
            built = self.build(candidate)
            codes[candidate.label] = bound_code(built)(state)
            threads = max(threads, built.compiled.threads)
        facts = self.facts({**self.job.facts, **facts_of_code(threads)})
        case, session = cases.make_case(self.subject, facts, case_id=self.job.case_id), self.session()
        self.channel.stage(MEASURE)
        try:
            cases.compare(case, codes, session)
        finally:
            for row in session.rows:
                self.channel.tell({"row": row})
