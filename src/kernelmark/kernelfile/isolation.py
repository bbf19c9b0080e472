"""Runs the child processes of a benchmark: groups of their own, time limits, output kept, death understood.

There are two: a worker, which loads the solution, and a judge, which never does. The parent's clock is the
only one that a solution cannot reach.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from kernelmark.kernelfile.handover import OUTCOME, READY, TIMED, Job, Outcome, SecondCheck
from kernelmark.kernelfile.request import Request
from kernelmark.process import death_in_words, kill_group, tail_of

__all__ = ["Processes", "WorkerEnd"]

_START_UP_S = 180.0
"""Importing torch and opening a CUDA device took 3 s to 20 s where it was measured; then comes the probe."""
_POLL_S = 0.02
_SEED_BITS = 31


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How a job of the worker ended, seen from outside."""

    outcome: Outcome | None
    """What it said itself; ``None`` if it died before it could."""
    started: bool
    """Whether it had started up, so that what came then is about the files it ran."""
    death: str
    """How it died, in words; blank for one that ended in order."""
    output: str
    """The last lines that it wrote to stdout and stderr."""
    wall_s: float
    """How long it took from its start-up on, by the parent's clock."""
    seed: int | None = None
    """What its answers for the second check were drawn with; ``None`` if it did not come that far."""


class Processes:
    """The child processes of one benchmark, or of several that follow each other.

    Args:
        keep_worker: Whether one worker serves all jobs of the same files, as long as they end well. Without
            it each job has its own, which is gone, with all it started, when the job has ended.
    """

    def __init__(self, *, keep_worker: bool = False) -> None:
        self._keep = keep_worker
        self._worker: _Child | None = None
        self._judge: _Child | None = None
        self._serves: tuple[object, ...] = ()

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End both, and whatever they started."""
        self._retire_worker()
        if self._judge is not None:
            self._judge.close()
            self._judge = None

    def work(self, job: Job) -> WorkerEnd:
        """Have the worker carry out ``job``, and wait for its end."""
        serves = (job.request.solution, job.request.ref, job.request.implementation, job.request.device)
        if self._worker is None or self._serves != serves or self._worker.ended:
            self._retire_worker()
            self._worker, self._serves = _Child("worker", _environment(job.request)), serves
        try:
            end = self._worker.carry_out(job)
        except BaseException:
            self._retire_worker()
            raise
        # one that met with a failure is in an unknown state: memory overwritten, a clock replaced
        if not self._keep or end.outcome is None or end.outcome.error:
            self._retire_worker()
        return end

    def recheck(self, job: Job) -> SecondCheck:
        """Have the judge check the answers that the worker left in the folder of ``job``."""
        if self._judge is None or self._judge.ended:
            self._judge = _Child("judge", dict(os.environ))
        # in a folder of its own: a worker that serves the next size too knows the other
        with tempfile.TemporaryDirectory(prefix="kernelmark-") as folder:
            return self._recheck(self._judge, replace(job, folder=Path(folder), answers=job.folder))

    def _recheck(self, judge: _Child, job: Job) -> SecondCheck:
        end = judge.carry_out(job)
        if end.outcome is None:
            judge.close()
            self._judge = None
        said = end.death if end.outcome is None else end.outcome.message
        if said:
            return SecondCheck(broken=f"{said}\n{end.output}".strip())
        return SecondCheck.read(job.folder)

    def _retire_worker(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None


class _Child:
    """One process, which takes jobs on its stdin."""

    def __init__(self, module: str, environment: dict[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kernelmark-")
        self._log = Path(self._folder.name) / "output.txt"
        # -P keeps files of the working folder, such as a torch.py, from being taken for libraries
        command = [sys.executable, "-P", "-u", "-m", f"kernelmark.kernelfile.{module}"]
        with open(self._log, "ab") as stream:  # appended to, so that it can be emptied between jobs
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    @property
    def ended(self) -> bool:
        """Whether it has died."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End it, its group and its log."""
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        kill_group(self._process)
        self._folder.cleanup()

    def carry_out(self, job: Job) -> WorkerEnd:
        """Give it ``job`` and wait until it has ended, has died, or takes too long."""
        job.write()
        self._log.write_bytes(b"")
        self._say({"folder": str(job.folder)})
        death, started, wall_s, seed = self._wait(job)
        outcome = _read_outcome(job.folder / OUTCOME)
        return WorkerEnd(outcome, started, "" if outcome else death, tail_of(self._log), wall_s, seed)

    def _wait(self, job: Job) -> tuple[str, bool, float, int | None]:
        """Wait for the end, first of the start-up and then of the work; give the death, and what was reached."""
        begin, started_at, seed = time.monotonic(), None, None
        while True:
            done, code, now = (job.folder / OUTCOME).exists(), self._process.poll(), time.monotonic()
            if started_at is None and (job.folder / READY).exists():
                started_at = now
            if seed is None and (job.folder / TIMED).exists():
                seed = secrets.randbits(_SEED_BITS)
                self._say({"seed": seed})
            wall_s = now - (started_at or begin)
            if done or code is not None:
                return death_in_words(code or 0), started_at is not None, wall_s, seed
            allowed = _START_UP_S if started_at is None else job.request.timeout_s
            if wall_s > allowed:
                what = "it did not start up" if started_at is None else "it did not end"
                return f"{what} within {allowed:g} s", started_at is not None, wall_s, seed
            time.sleep(_POLL_S)

    def _say(self, order: dict[str, object]) -> None:
        # one that has died is found by its exit status
        with suppress(OSError, ValueError):
            assert self._process.stdin is not None  # a pipe was asked for
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()


def _read_outcome(path: Path) -> Outcome | None:
    try:
        return Outcome(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _environment(request: Request) -> dict[str, str]:
    environment = dict(os.environ)
    if request.interpreted:
        environment["TRITON_INTERPRET"] = "1"
    return environment
