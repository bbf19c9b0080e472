"""The second check: a solution's answers to values drawn after timing, compared where it was never loaded.

A solution runs in the worker's process and can say there what it likes. The worker leaves what the solution answered
as plain data: a table in JSON, and the bytes of tensors one after the other in a file beside it. The judge, a process
that runs references and never loads a solution, compares it with the reference's answer to the same values. Nothing
is executed when the data are read, and nothing is believed: forms and sizes are checked.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch

from kernelmark.device import open_device
from kernelmark.errors import VerificationError
from kernelmark.files import replace
from kernelmark.harness.loading import forget_modules
from kernelmark.isolation import READY, Channel
from kernelmark.kernelfile import solutions
from kernelmark.kernelfile.request import Job, SecondCheck
from kernelmark.verify import Exact, check_outputs, poison, run_controls, vacuous

__all__ = [
    "MOST_BYTES",
    "Answers",
    "NoPlainDataError",
    "Reader",
    "TooLargeError",
    "Writer",
    "compare_answers",
    "leave_answers",
    "read_answers",
    "recheck",
]

MOST_BYTES = 4 << 30
"""Of all tensors together; they pass through a file of the system's temporary folder."""


class TooLargeError(Exception):
    """There is more than passes through a file."""


class NoPlainDataError(Exception):
    """A value that only means something in its own process."""


@dataclass(slots=True)
class Writer:
    """Tells values as JSON, and writes the bytes of their tensors one after the other."""

    stream: BinaryIO
    _written: int = 0

    def told_apart(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """Tell each of ``values``, and of those that cannot be told, why."""
        told, dropped = {}, {}
        for name, value in values.items():
            try:
                told[name] = self.told(value)
            except NoPlainDataError as error:
                dropped[name] = str(error)
        return told, dropped

    def told(self, value: Any) -> Any:
        """Tell ``value``, which may be nested.

        Raises:
            NoPlainDataError: something in it only means something in this process.
            TooLargeError: its tensors are too large.
        """
        match value:
            case torch.Tensor():
                self._written += value.numel() * value.element_size()
                if self._written > MOST_BYTES:
                    raise TooLargeError(f"its data are more than {MOST_BYTES >> 30} GiB")
                plain = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
                plain.reshape(-1).view(torch.uint8).numpy().tofile(self.stream)
                return {"tensor": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
            case torch.dtype():
                return {"dtype": str(value).removeprefix("torch.")}
            case list() | tuple():
                return {type(value).__name__: [self.told(each) for each in value]}
            case Mapping() if all(isinstance(name, str) for name in value):
                return {"dict": {name: self.told(each) for name, each in value.items()}}
            case None | bool() | int() | float() | str():
                return {"value": value}
        raise NoPlainDataError(f"a {type(value).__name__} is no plain data")


@dataclass(frozen=True, slots=True)
class Reader:
    """Makes the values again, on ``device``."""

    stream: BinaryIO
    device: str

    def value(self, told: Any) -> Any:
        """Make the value that ``told`` tells.

        Raises:
            ValueError: or TypeError, KeyError, RuntimeError, where it tells none.
        """
        match told:
            case {"tensor": dtype}:
                return self._tensor(_dtype(dtype), [int(each) for each in told["shape"]])
            case {"dtype": dtype}:
                return _dtype(dtype)
            case {"list": values}:
                return [self.value(each) for each in values]
            case {"tuple": values}:
                return tuple(self.value(each) for each in values)
            case {"dict": values}:
                return {name: self.value(each) for name, each in values.items()}
        return told["value"]

    def _tensor(self, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
        size = math.prod(shape) * dtype.itemsize
        if any(each < 0 for each in shape) or size > MOST_BYTES:
            raise ValueError(f"a tensor of the shape {shape}, of {size} bytes")
        data = bytearray(self.stream.read(size))
        if len(data) != size:
            raise ValueError(f"{len(data)} bytes for a tensor of {size}")
        flat = torch.frombuffer(data, dtype=torch.uint8) if size else torch.empty(0, dtype=torch.uint8)
        return flat.view(dtype).view(shape).to(self.device)


def _dtype(name: object) -> torch.dtype:
    found = getattr(torch, str(name), None)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"there is no dtype {name!r}")
    return found


# --- the worker's part ---------------------------------------------------------------------------------


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
    own: solutions.Ready,
    solution: solutions.LibrarySolution | solutions.ModuleSolution,
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
    solutions.take_values(own, solution.data(seed))
    pure = {name: own.kwargs[name] for name in own.outputs if name not in inout}
    # a library's arguments can be drawn again; outputs are told by what it gave
    given = {} if isinstance(solution, solutions.LibrarySolution) else own.kwargs
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


# --- the judge's part ----------------------------------------------------------------------------------


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
    device = open_device(solutions.device_of(job.request)).torch_name
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
    prepared = solutions.prepare(job, device)
    reference = prepared.reference
    needed = inspect.signature(reference.function).parameters
    try:
        left = read_answers(job.folder, device)
        lost = (f"setup() gives {name}, and {why}" for name, why in left.dropped.items() if name in needed)
        if undone := left.undone or next(lost, ""):
            return SecondCheck(undone=undone)
        kwargs = _arguments(job, prepared, left)
    except VerificationError as error:
        return SecondCheck(wrong=str(error))
    expected = reference.answer({**prepared.extra, **kwargs}, tuple(left.outputs))
    got = {
        name: solutions.shown_as(value, expected[name]) if name in prepared.inferred else value
        for name, value in left.outputs.items()
    }
    declaration = Exact(reference.policy)
    verdict = check_outputs(got, expected, declaration)
    inputs = [value for name, value in kwargs.items() if name not in expected]
    return SecondCheck(
        wrong="" if verdict.passed else verdict.message,
        vacuous=vacuous(run_controls(expected, inputs, declaration)),
        outputs=verdict.outputs,
    )


def _arguments(job: Job, prepared: solutions.Prepared, left: Answers) -> dict[str, Any]:
    """Draw the arguments again where they are ours to draw; those of a ``setup`` are the worker's word."""
    if not isinstance(prepared.solution, solutions.LibrarySolution):
        return {**{name: torch.empty_like(each) for name, each in left.outputs.items()}, **left.arguments}
    assert job.seed is not None  # a judge is told
    drawn = prepared.solution.data(job.seed)
    if tuple(left.outputs) != drawn.outputs:
        raise VerificationError(
            f"the worker left the outputs {', '.join(left.outputs)}, and solve() has {', '.join(drawn.outputs)}"
        )
    return drawn.kwargs
