"""A solution's answers for values drawn after timing, left as raw bytes and a table, for a check outside it.

How values become bytes and back is ``plain_data``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kernelmark.errors import OutOfBoundsError, VerificationError
from kernelmark.kernelfile.binding import take_values
from kernelmark.kernelfile.handover import ANSWERS, write_json
from kernelmark.kernelfile.plain_data import Reader, TooLargeError, Writer
from kernelmark.kernelfile.solutions import Ready, Solution
from kernelmark.verify import poison

__all__ = ["Answers", "leave_answers", "read_answers"]


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
    own: Ready, solution: Solution, *, inout: tuple[str, ...], seed: int, folder: Path, ours: bool
) -> None:
    """Call the solution once on values drawn with ``seed``, and leave what it was given and what it gave.

    Args:
        own: The instance that was timed.
        solution: What it is an instance of.
        inout: Outputs whose values before the call matter.
        seed: Drawn by the parent after timing, so that no instance has seen these values.
        folder: The job's folder.
        ours: Whether the arguments are drawn by us, so that the check can draw them again.

    Raises:
        OutOfBoundsError: the call wrote beside its buffers.
        Exception: whatever the solution raises.
    """
    take_values(own, solution.data(seed))
    pure = {name: own.kwargs[name] for name in own.outputs if name not in inout}
    told: dict[str, Any] = {}
    with open(folder / f"{ANSWERS}.bin", "wb") as stream:
        writer = Writer(stream, skipped=tuple(map(id, pure.values())))
        try:
            given, dropped = ({}, {}) if ours else writer.told_apart(own.kwargs)
            _call(own, pure)
            writer.skipped = ()
            gave = {name: writer.told(own.kwargs[name]) for name in own.outputs}
            told = {"arguments": given, "dropped": dropped, "outputs": gave}
        except TooLargeError as error:
            told = {"undone": str(error)}
    write_json(folder / f"{ANSWERS}.json", told)


def _call(own: Ready, pure: Mapping[str, torch.Tensor]) -> None:
    poison(pure, 0)
    own.call()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    damage = own.canaries.damage()
    if damage:
        raise OutOfBoundsError(f"the solution wrote outside its buffers: {damage}")


def read_answers(folder: Path, device: str) -> Answers:
    """Read what a worker left.

    Raises:
        VerificationError: it left nothing, or nothing that can be read.
    """
    try:
        told = json.loads((folder / f"{ANSWERS}.json").read_text(encoding="utf-8"))
        if told.get("undone"):
            return Answers({}, {}, undone=str(told["undone"]))
        with open(folder / f"{ANSWERS}.bin", "rb") as stream:
            reader = Reader(stream, device)
            arguments = {name: reader.value(each) for name, each in told["arguments"].items()}
            outputs = {name: reader.value(each) for name, each in told["outputs"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise VerificationError(
            f"the worker left no answers that can be read ({type(error).__name__}: {error}), so nothing shows"
            " that the solution is right"
        ) from error
    if not all(isinstance(each, torch.Tensor) for each in outputs.values()):
        raise VerificationError("the worker left outputs that are no tensors")
    return Answers(arguments, outputs, {str(name): str(why) for name, why in told.get("dropped", {}).items()})
