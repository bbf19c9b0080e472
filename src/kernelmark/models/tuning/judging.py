"""Judges candidates in workers that can be ended: one for each job, with limits of time.

A worker that dies at a candidate costs that candidate alone: the rest of its job goes to another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kernelmark.errors import CrashedError, ModelError, VerificationError
from kernelmark.isolation import Ended, Limits, Start, Worker
from kernelmark.models.request import ModelRequest, packed
from kernelmark.models.tuning.request import TuneRequest
from kernelmark.models.tuning.space import Candidate
from kernelmark.records import Check, Note, Role, Row, RunHeader
from kernelmark.timing import Budget
from torchsched.elements import Element

__all__ = ["MEASURE", "Judge", "Measured", "ProcessJudge", "TuneJob", "codes_of"]

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


_TARGET = "kernelmark.models.tuning.worker:carry_out"
_PRELOAD = ("torch._dynamo", "torch_mlir.fx", "kernelmark.models.tuning.worker")
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
            note=Note.free(f"{ended.stage}: {self._death(ended)}"),
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
