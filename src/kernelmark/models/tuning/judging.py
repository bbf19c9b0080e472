"""Judges candidates in workers that can be ended: one for each job, with limits of time.

A worker loads the model once, compiles candidates, and lets the engine check or time them. It may hang or die at any
candidate: what it has told says how far it came, and the rest of its job goes to another one.
"""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from kernelmark.errors import CrashedError, KernelmarkError, ModelError, VerificationError
from kernelmark.harness import Case, Implementation, Session, SessionOptions, make_plan, run_plan, use_session
from kernelmark.isolation import Channel, Ended, Limits, Start, Worker
from kernelmark.models.case import Draws, check_on_second_draw, draw_twice, make_case, request_facts
from kernelmark.models.compilers import Contestant, Subject
from kernelmark.models.mlir import bound_code, build_options, facts_of_code
from kernelmark.models.request import ModelRequest, packed, policy_for, unpacked
from kernelmark.models.run import load_subject, told_of_memory
from kernelmark.models.state import State
from kernelmark.models.tuning.request import TuneRequest
from kernelmark.models.tuning.space import Candidate
from kernelmark.records import Check, Note, NoteKind, Role, Row, RunHeader
from kernelmark.text import message_of
from kernelmark.timing import Budget
from torchsched.building import Built, build
from torchsched.elements import Element
from torchsched.failures import Stage
from torchsched.heap import keep_large_blocks
from torchsched.ingress import LoadedModel
from torchsched.targets import Target

__all__ = ["MEASURE", "Judge", "Measured", "ProcessJudge", "TuneJob", "carry_out", "codes_of"]

MEASURE = "measure"
"""The stage of a worker in which everything is compiled, and timed."""


@dataclass(frozen=True, slots=True)
class TuneJob:
    """Compile each candidate and check its answer; with a budget, compile all and time them in one interleaved run."""

    request: ModelRequest
    element: Element
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
    at: int | None = None
    """The candidate that it died of, where that is known."""


class Judge(Protocol):
    """Says whether candidates are right, and how long they take."""

    def check(
        self, case_id: str, candidates: Sequence[Candidate], known: Mapping[str, str]
    ) -> tuple[Row, ...]:
        """Give a row for each candidate."""
        ...

    def measure(
        self, case_id: str, contestants: Sequence[Candidate], budget: Budget, facts: Mapping[str, Any]
    ) -> Measured:
        """Time the contestants in one interleaved run; the first is what the others are compared with."""
        ...


class ProcessJudge:
    """The judge that runs them; close it, or use it in a ``with`` block.

    Args:
        request: What is searched.
        element: What the schedule is looked up for.
        header: The run that the rows belong to.

    Attributes:
        limit_s: Seconds that one candidate may take to be compiled and checked.
    """

    def __init__(self, request: TuneRequest, element: Element, header: RunHeader) -> None:
        self._request, self._element, self._header = request, element, header
        self.limit_s = request.limit_s
        self._worker: Worker[None] = Worker(_TARGET, Limits(None), start=Start.FORK, preload=_PRELOAD)

    def __enter__(self) -> ProcessJudge:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.close()

    def check(
        self, case_id: str, candidates: Sequence[Candidate], known: Mapping[str, str]
    ) -> tuple[Row, ...]:
        """Compile and check; see :class:`Judge`.

        Raises:
            KernelmarkError: the model itself cannot be used, so that no candidate could.
            CrashedError: the process died before it came to a candidate.
        """
        left, rows = list(candidates), list[Row]()
        while left:
            ended = self._run(self._job(case_id, left, known={**known, **codes_of(rows)}))
            if ended.failure is not None:
                raise ended.failure.error
            answered = _rows(ended)
            rows += answered
            left = left[len(answered) :]
            if ended.death is None or not left:
                break
            if _at(ended) != left[0].number:
                raise CrashedError(f"no candidate was come to: {self._death(ended)}")
            rows.append(self._died(case_id, left.pop(0), ended))
        return tuple(rows)

    def measure(
        self, case_id: str, contestants: Sequence[Candidate], budget: Budget, facts: Mapping[str, Any]
    ) -> Measured:
        """Compile all, and time them together; see :class:`Judge`.

        Raises:
            TimingError: the instrument cannot vouch for a reading.
        """
        ended = self._run(self._job(case_id, contestants, budget=budget, facts=facts))
        error = ended.failure.error if ended.failure is not None else None
        if isinstance(error, ModelError):
            return Measured((), str(error), _at(ended))
        if error is not None and not (isinstance(error, VerificationError) and _rows(ended)):
            raise error
        if ended.death is None:
            return Measured(_rows(ended))
        at = None if ended.stage == MEASURE else _at(ended)
        return Measured((), f"{ended.stage or 'load'}: {self._death(ended)}", at)

    def _job(self, case_id: str, candidates: Sequence[Candidate], **more: Any) -> TuneJob:
        return TuneJob(
            self._request.model, self._element, self._header, case_id, tuple(candidates), self.limit_s, **more
        )

    def _run(self, job: TuneJob) -> Ended[None]:
        # a measurement is given as long again as compiling was: its calls have no other limit
        limits = Limits(_START_UP_S + 2 * self.limit_s * len(job.candidates))
        return self._worker.call(packed(job), limits=limits)

    def _death(self, ended: Ended[None]) -> str:
        """Say how a worker died, and what it wrote last."""
        limit_s = self.limit_s if ended.stage not in ("", MEASURE) else ended.wall_s
        timed_out = ended.death is not None and ended.death.timed_out
        told = (
            f"it did not end within {limit_s:.3g} s; --limit gives it more" if timed_out else str(ended.death)
        )
        return "\n".join(filter(None, [told, ended.errors.strip() or ended.output.strip()]))

    def _died(self, case_id: str, candidate: Candidate, ended: Ended[None]) -> Row:
        return Row(
            case=case_id,
            implementation=candidate.label,
            role=Role.OURS,
            check=Check.FAILED,
            note=Note.of(NoteKind.FAILED_AT, stage=ended.stage, text=self._death(ended)),
            params={"stage": ended.stage, "died": True},
            seed=self._request.model.seed,
        )


def codes_of(rows: Sequence[Row]) -> dict[str, str]:
    """Give the label of the candidate that has each code that was checked, by the code's digest."""
    return {
        str(row.params["code"]): row.implementation
        for row in rows
        if row.check.comparable and "same" not in row.params
    }


def _rows(ended: Ended[None]) -> tuple[Row, ...]:
    return tuple(Row.model_validate(each["row"]) for each in ended.told if "row" in each)


def _at(ended: Ended[None]) -> int | None:
    """Give the candidate that a worker was at last."""
    return next((each["candidate"] for each in reversed(ended.told) if "candidate" in each), None)


def carry_out(job: str, channel: Channel) -> None:
    """Carry out a packed :class:`~kernelmark.models.tuning.judging.TuneJob`; rows are handed over as they are made."""
    asked: TuneJob = unpacked(job)
    target = asked.request.resolve_target()
    keep_large_blocks()
    threads = torch.get_num_threads()
    torch.set_num_threads(target.threads)
    try:
        with torch.no_grad(), told_of_memory(asked.request.name):
            shop = _Shop(asked, channel, target, *load_subject(asked.request, "cpu"))
            if asked.budget is None:
                _check_all(shop)
            else:
                _measure(shop, asked.budget)
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True, slots=True)
class _Shop:
    """One model, loaded, and what is made of it."""

    job: TuneJob
    channel: Channel
    target: Target
    subject: Subject
    loaded: LoadedModel

    def begin(self, candidate: Candidate) -> Callable[[Stage], None]:
        """Tell that a candidate begins; gives what tells each of its stages, all in the time that it may take."""
        self.channel.tell({"candidate": candidate.number})
        ends_s = time.monotonic() + self.job.limit_s
        return lambda stage: self.channel.stage(stage, limit_s=max(0.0, ends_s - time.monotonic()))

    def build(self, candidate: Candidate, began: Callable[[Stage], object]) -> Built:
        """Compile the model with a candidate's values; each stage is told as it begins."""
        options = build_options(
            self.job.request, self.target, element=self.job.element, values=candidate.values
        )
        return build(self.subject.model, self.subject.inputs, options, on_stage=began)

    def case(
        self,
        facts: Mapping[str, Any],
        case_id: str | None = None,
        inputs: tuple[Any, ...] | None = None,
        state: State | None = None,
    ) -> Case:
        """Make the case that the engine is given."""
        rule = policy_for(self.job.request.tolerance, self.job.element)
        facts = {**request_facts(self.job.request, self.loaded), **facts, **keep_large_blocks()}
        return make_case(
            self.subject, rule, facts, case_id=case_id or self.job.case_id, inputs=inputs, state=state
        )

    def session(self, *, budget: Budget | None = None) -> Session:
        """Take part in the run whose header the job has; without a budget, only check."""
        options = SessionOptions(
            device="cpu",
            verify_only=budget is None,
            cache=self.job.request.cache,
            budget=budget or Budget(),
            ceilings=False,
        )
        return Session(options, header=self.job.header)


# --- checking -----------------------------------------------------------------------------------------


def _check_all(shop: _Shop) -> None:
    known = dict(shop.job.known)
    draws = draw_twice(shop.subject)
    for candidate in shop.job.candidates:
        row = _checked(shop, candidate, known, draws)
        shop.channel.tell({"row": row})
        if row.check.comparable:
            known.setdefault(str(row.params["code"]), candidate.label)


def _checked(shop: _Shop, candidate: Candidate, known: Mapping[str, str], draws: Draws) -> Row:
    """Compile one candidate and check it; whatever goes wrong is its row."""
    reached, wrong, tell = [Stage.IMPORT], list[Row](), shop.begin(candidate)

    def began(stage: Stage) -> None:
        reached.append(stage)
        tell(stage)

    def failed(error: Exception, at: str) -> Row:
        note = Note.of(NoteKind.FAILED_AT, stage=at, text=message_of(error))
        if isinstance(error, ModelError):  # its message names the stage
            note = Note.error(error)
        row = _row(shop, candidate, Check.FAILED, note)
        text = None if isinstance(error, KernelmarkError) else "".join(traceback.format_exception(error))
        return row.model_copy(update={"params": {**row.params, "stage": at}, "traceback": text})

    try:
        built = shop.build(candidate, began)
        code = _digest(built)
        facts = {"code": code, "threads": built.compiled.threads, "draws": str(draws)}
        if code in known:
            row = _row(shop, candidate, Check.VERIFIED, Note.of(NoteKind.SAME_CODE, candidate=known[code]))
            return row.model_copy(update={"params": {**row.params, **facts, "same": known[code]}})
        began(Stage.RUN)
        contestant = Contestant(candidate.label, lambda inputs, state: bound_code(built, inputs, state))
        check_on_second_draw(
            contestant,
            shop.subject,
            draws,
            lambda case_id, inputs, state: shop.case(facts, case_id, inputs, state),
            wrong.append,
        )
        return _verified(shop, contestant, facts)
    except VerificationError as error:
        wrong += error.comparison or ()
        if not wrong:
            return failed(error, str(reached[-1]))
        return wrong[0].model_copy(update={"case": shop.job.case_id, "note": Note.error(error)})
    except ModelError as error:
        return failed(error, error.stage)
    except Exception as error:  # noqa: BLE001 - a compiler that breaks on a candidate is what was to be found out
        return failed(error, str(reached[-1]))


def _verified(shop: _Shop, contestant: Contestant, facts: Mapping[str, Any]) -> Row:
    """Let the engine check the code on the first draw of the inputs."""
    case, session = shop.case(facts), shop.session()
    code = contestant.bind(shop.subject.inputs, shop.subject.state)
    try:
        with use_session(session):
            return run_plan(make_plan(case, (contestant.name, code), {}), session).rows[0]
    finally:
        case.release()


def _row(shop: _Shop, candidate: Candidate, check: Check, note: Note) -> Row:
    case = shop.case({})
    return Row(
        case=case.id,
        implementation=candidate.label,
        role=Role.OURS,
        check=check,
        note=note,
        params=case.params,
        seed=case.seed,
    )


def _digest(built: Built) -> str:
    """Tell one candidate's code from another's: what LLVM got, and for how many threads."""
    text = f"{built.compiled.threads}\n{built.compiled.llvm_module}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# --- measuring ----------------------------------------------------------------------------------------


def _measure(shop: _Shop, budget: Budget) -> None:
    job, codes, threads = shop.job, dict[str, Implementation](), 1
    for candidate in job.candidates:
        built = shop.build(candidate, shop.begin(candidate))
        codes[candidate.label] = bound_code(built, shop.subject.inputs, shop.subject.state)
        threads = max(threads, built.compiled.threads)
    case, session = shop.case({**job.facts, **facts_of_code(threads)}), shop.session(budget=budget)
    ours, *others = codes
    shop.channel.stage(MEASURE)
    try:
        with use_session(session):
            run_plan(make_plan(case, (ours, codes[ours]), {name: codes[name] for name in others}), session)
    finally:
        case.release()
        for row in session.rows:
            shop.channel.tell({"row": row})
