"""One kernel of a suite in a worker of its own, and what its end means.

In the worker a model is run as ``kernelmark model`` runs it; the engine says what is known of its answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from kernelmark.isolation import Channel, Ended
from kernelmark.models.request import unpacked
from kernelmark.records import Cause, Check, Fate, Stage
from kernelmark.report.notes import note_text

__all__ = ["PRELOAD", "KernelAnswer", "KernelJob", "fate_of", "fate_of_death", "run_kernel", "stage_of"]

PRELOAD = ("torch._dynamo", "torch_mlir.fx", "kernelmark.models.run", __name__)
"""What every worker would import by itself otherwise, before it says anything."""


@dataclass(frozen=True, slots=True)
class KernelJob:
    """What a worker is asked."""

    request: str
    """The :class:`~kernelmark.models.ModelRequest`, packed."""
    command: tuple[str, ...]
    """The command line that does the same, for the record."""


@dataclass(frozen=True, slots=True)
class KernelAnswer:
    """What the engine found."""

    check: Check
    timed: bool
    note: str = ""
    """Why nothing vouches for it, where that is so."""


def run_kernel(job: KernelJob, channel: Channel) -> KernelAnswer:
    """Run the model; what it prints is written at once, since what follows may crash."""
    from kernelmark.models.run import print_model  # torch is loaded in the worker alone

    found = print_model(
        unpacked(job.request), partial(print, flush=True), command=job.command, on_step=channel.stage
    )
    ours = found.ours
    note = "" if ours.check.comparable else note_text(ours.note)
    return KernelAnswer(ours.check, ours.timing is not None, note)


def fate_of(ended: Ended[KernelAnswer]) -> tuple[Fate, str]:
    """Give what became of a kernel whose worker ended so, and why it is not verified, in words."""
    if ended.answer is not None:
        return Fate.of_check(ended.answer.check, timed=ended.answer.timed), ended.answer.note
    if ended.failure is not None:
        return Fate.of(ended.failure.error), ended.failure.message
    fate = fate_of_death(ended, Stage.LOAD)
    return fate, f"{ended.stage}: {ended.death}" if ended.stage else str(ended.death)


def stage_of(ended: Ended[Any], first: Stage) -> Stage:
    """Give the last stage that a worker told; ``first`` where it told none."""
    return next((Stage(each) for each in reversed(ended.stages) if each in list(Stage)), first)


def fate_of_death(ended: Ended[Any], first: Stage) -> Fate:
    """Give what became of what a worker ran that died, at ``first`` where it told no stage."""
    cause = Cause.DIED
    if ended.death is not None and (ended.death.timed_out or ended.death.killed):
        cause = (
            Cause.LIMIT if ended.death.timed_out else Cause.MEMORY
        )  # the system kills where memory runs out
    return Fate(stage_of(ended, first), cause)
