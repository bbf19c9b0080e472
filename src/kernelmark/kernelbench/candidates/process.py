"""The two processes of a candidate: the worker, which loads it, and the judge, which never does."""

from __future__ import annotations

import faulthandler
from collections.abc import Sequence
from pathlib import Path

from kernelmark.kernelbench.candidates.job import Job
from kernelmark.kernelfile.handover import Outcome
from kernelmark.kernelfile.jobs import ended

__all__ = ["JUDGE", "WORKER", "main"]

WORKER, JUDGE = "worker", "judge"


def main(arguments: Sequence[str]) -> int:
    """Be one of them: ``worker FOLDER`` or ``judge FOLDER``; a job has ended when its outcome is in the folder."""
    role, folder = arguments
    faulthandler.enable(all_threads=False)  # there is a thread a core that flushes, and each would be shown
    job = Job.read(Path(folder))
    outcome = _work(job) if role == WORKER else _judge(job)
    outcome.write(job.folder)
    return 0


def _work(job: Job) -> Outcome:
    from kernelmark.kernelbench.candidates.worker import work

    return work(job)


def _judge(job: Job) -> Outcome:
    import torch

    from kernelmark.device import open_device
    from kernelmark.kernelbench.candidates.answers import compare_answers
    from kernelmark.kernelbench.candidates.problem import load_problem

    try:
        device = open_device(job.settings.device).torch_name
        with torch.no_grad():
            compare_answers(job, load_problem(job, device), device).write(job.folder)
    except Exception as error:  # noqa: BLE001 - the outermost frame: everything becomes the outcome
        return ended(error)
    return Outcome()


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
