"""Runs the worker: a process group of its own, a time limit, its output kept, its death understood.

The parent's clock is the only one that a solution cannot reach.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from kernelmark.kernelfile.handover import OUTCOME, READY, Outcome
from kernelmark.kernelfile.languages import Language
from kernelmark.kernelfile.request import Request
from kernelmark.process import death_in_words, kill_group, tail_of

__all__ = ["WorkerEnd", "run_worker"]

_START_UP_S = 180.0
"""Importing torch and opening a CUDA device took 3 s to 20 s where it was measured; then comes the probe."""
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How a worker ended, seen from outside."""

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


def run_worker(request: Request, library: Path | None, scratch: Path) -> WorkerEnd:
    """Run the worker for ``request`` in a process of its own, and wait for its end.

    Whatever it started is gone when this returns, also after an interrupt.
    """
    told = {"request": request.to_json(), "library": str(library) if library else None}
    (scratch / "request.json").write_text(json.dumps(told), encoding="utf-8")
    log = scratch / "output.txt"
    # -P keeps files of the working folder, such as a torch.py, from being taken for libraries
    command = [sys.executable, "-P", "-u", "-m", "kernelmark.kernelfile.worker", str(scratch)]
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=_environment(request),
            start_new_session=True,
        )
        try:
            death, started, wall_s = _wait(process, request.timeout_s, scratch)
        finally:
            kill_group(process)
    outcome = _read_outcome(scratch / OUTCOME)
    return WorkerEnd(outcome, started, "" if outcome else death, tail_of(log), wall_s)


def _wait(process: subprocess.Popen[bytes], limit_s: float, scratch: Path) -> tuple[str, bool, float]:
    """Wait for the end, first of the start-up and then of the work; give the death, and what was reached."""
    begin, started_at = time.monotonic(), None
    while True:
        code = process.poll()
        now = time.monotonic()
        if started_at is None and (scratch / READY).exists():
            started_at = now
        if code is not None:
            return death_in_words(code), started_at is not None, now - (started_at or begin)
        allowed = _START_UP_S if started_at is None else limit_s
        if now - (started_at or begin) > allowed:
            what = "it did not start up" if started_at is None else "it did not end"
            return f"{what} within {allowed:g} s", started_at is not None, now - (started_at or begin)
        time.sleep(_POLL_S)


def _read_outcome(path: Path) -> Outcome | None:
    try:
        return Outcome(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _environment(request: Request) -> dict[str, str]:
    environment = dict(os.environ)
    if request.language is Language.TRITON and request.device == "cpu":
        environment["TRITON_INTERPRET"] = "1"
    return environment
