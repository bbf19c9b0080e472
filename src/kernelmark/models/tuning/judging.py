"""Judges candidates in processes that can be killed: a forked worker for each job, with limits of time.

A worker that dies at a candidate costs that candidate alone: the rest of its job goes to another one.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from kernelmark.errors import CrashedError, KernelmarkError, ModelError, VerificationError
from kernelmark.models.tuning.jobs import Answer, CheckJob, Job, MeasureJob, read_answers, write_job
from kernelmark.models.tuning.request import TuneRequest
from kernelmark.models.tuning.space import Candidate
from kernelmark.prefork import Finished, Limits, Prefork
from kernelmark.process import death_in_words
from kernelmark.records import Check, Note, Role, Row, RunHeader
from kernelmark.timing import Budget
from torchsched.elements import Element

__all__ = ["Judge", "Measured", "ProcessJudge"]

_TARGET = "kernelmark.models.tuning.worker:main"
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
        self._server: Prefork | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="kernelmark-")

    def __enter__(self) -> ProcessJudge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End whatever still runs."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._folder.cleanup()

    def check(
        self, case_id: str, candidates: Sequence[Candidate], known: Mapping[str, str]
    ) -> tuple[Row, ...]:
        """Compile and check; see :class:`Judge`.

        Raises:
            KernelmarkError: the model itself cannot be used, so that no candidate could.
            CrashedError: the process died before it came to a candidate.
        """
        left, rows = list(candidates), []
        while left:
            job = CheckJob(
                self._request.model,
                self._element,
                self._header,
                case_id,
                tuple(left),
                {**known, **_codes(rows)},
                self.limit_s,
            )
            ended, answer = self._run(job)
            if answer.error is not None:
                raise _raised(*answer.error)
            rows += answer.rows
            left = left[len(answer.rows) :]
            if answer.ended or not left:
                break
            if answer.at != left[0].number:
                death = self._death(ended)
                raise CrashedError(f"no candidate was come to: {death}{_said(ended)}")
            rows.append(_died(job, left.pop(0), answer.stage, self._death(ended), ended))
        return tuple(rows)

    def measure(
        self, case_id: str, contestants: Sequence[Candidate], budget: Budget, facts: Mapping[str, Any]
    ) -> Measured:
        """Compile all, and time them together; see :class:`Judge`.

        Raises:
            TimingError: the instrument cannot vouch for a reading.
        """
        job = MeasureJob(
            self._request.model,
            self._element,
            self._header,
            case_id,
            tuple(contestants),
            budget,
            facts,
            self.limit_s,
        )
        ended, answer = self._run(job)
        if answer.error is not None:
            error = _raised(*answer.error)
            if isinstance(error, VerificationError) and answer.rows:
                return Measured(answer.rows)
            if isinstance(error, ModelError):
                return Measured((), str(error), answer.at)
            raise error
        if answer.ended:
            return Measured(answer.rows)
        at = answer.at if answer.stage != "measure" else None
        return Measured((), f"{answer.stage or 'load'}: {self._death(ended)}{_said(ended)}", at)

    def _run(self, job: Job) -> tuple[Finished, Answer]:
        if self._server is None:
            self._server = Prefork(_TARGET, preload=_PRELOAD)
        folder = Path(self._folder.name)
        answers = folder / "answers.jsonl"
        answers.unlink(missing_ok=True)
        # a measurement is given as long again as compiling was: its calls have no other limit
        limit_s = _START_UP_S + 2 * self.limit_s * len(job.candidates)
        ended = self._server.run(
            [str(write_job(job, folder / "job")), str(answers)],
            log=folder / "worker.txt",
            limits=Limits(time_s=limit_s),
        )
        return ended, read_answers(answers)

    def _death(self, ended: Finished) -> str:
        if ended.code == -signal.SIGALRM:
            return f"it did not end within {self.limit_s:g} s; --limit gives it more"
        if ended.timed_out:
            return f"it did not end within {ended.wall_s:.0f} s; --limit gives it more"
        return death_in_words(ended.code)


def _codes(rows: Sequence[Row]) -> dict[str, str]:
    return {
        str(row.params["code"]): row.implementation
        for row in rows
        if row.check.comparable and "same" not in row.params
    }


def _died(job: CheckJob, candidate: Candidate, stage: str, death: str, ended: Finished) -> Row:
    return Row(
        case=job.case_id,
        implementation=candidate.label,
        role=Role.OURS,
        check=Check.FAILED,
        note=Note.free(f"{stage}: {death}{_said(ended)}"),
        params={"stage": stage, "died": True},
        seed=job.request.seed,
    )


def _said(ended: Finished) -> str:
    text = ended.errors.strip() or ended.output.strip()
    return f"\n{text}" if text else ""


def _raised(name: str, message: str) -> KernelmarkError:
    """Make the error that a worker named again."""
    kind = next((each for each in _kinds(KernelmarkError) if each.__name__ == name), None)
    return KernelmarkError(f"{name}: {message}") if kind is None else kind(message)


def _kinds(kind: type[KernelmarkError]) -> Iterator[type[KernelmarkError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _kinds(each)
