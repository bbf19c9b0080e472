"""The second check: a solution's answers to values drawn after timing, compared where it was never loaded.

A solution runs in the worker's process and can say there what it likes. The worker leaves what the solution answered
as plain data; the judge, a process that runs references and never loads a solution, compares it with the reference's
answer to the same values.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kernelmark.device import open_device
from kernelmark.errors import VerificationError
from kernelmark.files import replace
from kernelmark.harness.loading import forget_modules
from kernelmark.isolation import READY, Channel
from kernelmark.kernelfile.binding import shown_as, take_values
from kernelmark.kernelfile.handover import Job, SecondCheck
from kernelmark.kernelfile.plain_data import Reader, TooLargeError, Writer
from kernelmark.kernelfile.solutions import (
    LibrarySolution,
    ModuleSolution,
    Prepared,
    Ready,
    device_of,
    prepare,
)
from kernelmark.verify import Exact, check_outputs, poison, run_controls, vacuous

__all__ = ["Answers", "compare_answers", "leave_answers", "read_answers", "recheck"]


@dataclass(frozen=True, slots=True)
class Answers:
    """What the solution was called with, where that was its own to say, and what it gave."""

    arguments: dict[str, Any]
    outputs: dict[str, torch.Tensor]
    dropped: dict[str, str] = field(default_factory=dict)
    """Arguments that cannot be handed over, and why."""
    undone: str = ""
    """Why there are none; blank if there are."""


def leave_answers(
    own: Ready,
    solution: LibrarySolution | ModuleSolution,
    *,
    inout: tuple[str, ...],
    seed: int,
    folder: Path,
) -> None:
    """Call the solution once on values drawn with ``seed``, and leave what it was given and what it gave.

    Args:
        own: The instance that was timed.
        solution: What it is an instance of.
        inout: Outputs whose values before the call matter.
        seed: Drawn by the parent after timing, so that no instance has seen these values.
        folder: Where they are left.

    Raises:
        OutOfBoundsError: the call wrote beside its buffers.
        Exception: whatever the solution raises.
    """
    take_values(own, solution.data(seed))
    pure = {name: own.kwargs[name] for name in own.outputs if name not in inout}
    # a library's arguments can be drawn again; outputs are told by what it gave
    given = {} if isinstance(solution, LibrarySolution) else own.kwargs
    with open(folder / "answers.bin", "wb") as stream:
        writer = Writer(stream)
        try:
            arguments, dropped = writer.told_apart({name: given[name] for name in given if name not in pure})
            poison(pure, 0)
            own.call()
            if torch.accelerator.is_available():
                torch.accelerator.synchronize()
            if breach := own.canaries.exit("the solution"):
                raise breach
            gave = {name: writer.told(own.kwargs[name]) for name in own.outputs}
            told: dict[str, Any] = {"arguments": arguments, "dropped": dropped, "outputs": gave}
        except TooLargeError as error:
            told = {"undone": str(error)}
    replace(folder / "answers.json", json.dumps(told))


def read_answers(folder: Path, device: str) -> Answers:
    """Read what a worker left.

    Raises:
        VerificationError: it left nothing, or nothing that can be read.
    """
    try:
        told = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
        if told.get("undone"):
            return Answers({}, {}, undone=str(told["undone"]))
        with open(folder / "answers.bin", "rb") as stream:
            reader = Reader(stream, device)
            arguments = {name: reader.value(each) for name, each in told["arguments"].items()}
            outputs = {name: reader.value(each) for name, each in told["outputs"].items()}
        dropped = {str(name): str(why) for name, why in told.get("dropped", {}).items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise VerificationError(
            f"the worker left no answers that can be read ({type(error).__name__}: {error}), so nothing shows"
            " that the solution is right"
        ) from error
    if not outputs or not all(isinstance(each, torch.Tensor) for each in outputs.values()):
        raise VerificationError("the worker left no outputs, or some that are no tensors")
    return Answers(arguments, outputs, dropped)


def recheck(job: Job, channel: Channel) -> SecondCheck:
    """Compare the answers that a worker has left in the job's folder; what the judge is called with.

    Raises:
        Exception: whatever the reference raises.
    """
    device = open_device(device_of(job.request)).torch_name
    channel.stage(READY)
    try:
        return compare_answers(job, device)
    finally:
        forget_modules()


def compare_answers(job: Job, device: str) -> SecondCheck:
    """Compare what a worker has left in the job's folder with the reference's answers to the same values.

    Raises:
        Exception: whatever the reference raises.
    """
    prepared = prepare(job, device)
    try:
        left = read_answers(job.folder, device)
        undone = left.undone or _needed(prepared.reference.function, left.dropped)
        if undone:
            return SecondCheck(undone=undone)
        kwargs = _arguments(job, prepared, left)
    except VerificationError as error:
        return SecondCheck(wrong=str(error))
    expected = prepared.reference.answer({**prepared.extra, **kwargs}, tuple(left.outputs))
    got = {
        name: shown_as(value, expected[name]) if name in prepared.inferred else value
        for name, value in left.outputs.items()
    }
    declaration = Exact(prepared.reference.policy)
    verdict = check_outputs(got, expected, declaration)
    inputs = [value for name, value in kwargs.items() if name not in expected]
    return SecondCheck(
        wrong="" if verdict.passed else verdict.message,
        vacuous=vacuous(run_controls(expected, inputs, declaration)),
        outputs=verdict.outputs,
    )


def _arguments(job: Job, prepared: Prepared, left: Answers) -> dict[str, Any]:
    """Draw the arguments again where they are ours to draw; those of a ``setup`` are the worker's word."""
    if not isinstance(prepared.solution, LibrarySolution):
        return {**{name: torch.empty_like(each) for name, each in left.outputs.items()}, **left.arguments}
    assert job.seed is not None  # a judge is told
    drawn = prepared.solution.data(job.seed)
    if tuple(left.outputs) != drawn.outputs:
        raise VerificationError(
            f"the worker left the outputs {', '.join(left.outputs)}, and solve() has {', '.join(drawn.outputs)}"
        )
    return drawn.kwargs


def _needed(function: Any, dropped: dict[str, str]) -> str:
    """Say which argument the reference needs and cannot be given; blank where there is none."""
    explicit = inspect.signature(function).parameters
    return next((f"setup() gives {name}, and {why}" for name, why in dropped.items() if name in explicit), "")
