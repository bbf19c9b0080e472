"""A solution's answers for values drawn after timing, left as raw bytes and a table, for a check outside it.

Nothing in them is executed when they are read, and nothing is believed: forms and sizes are checked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch

from kernelmark.errors import OutOfBoundsError, VerificationError
from kernelmark.kernelfile.binding import take_values
from kernelmark.kernelfile.handover import ANSWERS, write_json
from kernelmark.kernelfile.solutions import Ready, Solution
from kernelmark.verify import poison

__all__ = ["Answers", "leave_answers", "read_answers"]

_MOST_BYTES = 4 << 30
"""Of inputs and outputs together; they pass through a file of the system's temporary folder."""


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
        writer = _Writer(stream, skipped=tuple(map(id, pure.values())))
        try:
            given, dropped = ({}, {}) if ours else writer.told_apart(own.kwargs)
            _call(own, pure)
            writer.skipped = ()
            gave = {name: writer.told(own.kwargs[name]) for name in own.outputs}
            told = {"arguments": given, "dropped": dropped, "outputs": gave}
        except _TooLargeError as error:
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
            reader = _Reader(stream, device)
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


class _TooLargeError(Exception):
    """There is more than passes through a file."""


class _NoPlainDataError(Exception):
    """A value that only means something in its own process."""


@dataclass(slots=True)
class _Writer:
    """Tells values as JSON, and writes the bytes of their tensors one after the other."""

    stream: BinaryIO
    skipped: tuple[int, ...]
    """Tensors whose values do not matter: only their form is told."""
    _written: int = 0

    def told_apart(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """Tell each of ``values``, and of those that cannot be told, why."""
        told, dropped = {}, {}
        for name, value in values.items():
            try:
                told[name] = self.told(value)
            except _NoPlainDataError as error:
                dropped[name] = str(error)
        return told, dropped

    def told(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, list | tuple):
            return {type(value).__name__: [self.told(each) for each in value]}
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return {"dict": {name: self.told(each) for name, each in value.items()}}
        if value is None or isinstance(value, bool | int | float | str):
            return {"value": value}
        raise _NoPlainDataError(f"a {type(value).__name__} is no plain data")

    def _tensor(self, tensor: torch.Tensor) -> dict[str, Any]:
        form = {"tensor": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
        if id(tensor) in self.skipped:
            return {**form, "data": False}
        self._written += tensor.numel() * tensor.element_size()
        if self._written > _MOST_BYTES:
            raise _TooLargeError(f"its data are more than {_MOST_BYTES >> 30} GiB")
        plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
        plain.reshape(-1).view(torch.uint8).numpy().tofile(self.stream)
        return {**form, "data": True}


@dataclass(frozen=True, slots=True)
class _Reader:
    """Makes the values again, on ``device``."""

    stream: BinaryIO
    device: str

    def value(self, told: Any) -> Any:
        if "tensor" in told:
            return self._tensor(told)
        if "dtype" in told:
            return _dtype(told["dtype"])
        if "list" in told:
            return [self.value(each) for each in told["list"]]
        if "tuple" in told:
            return tuple(self.value(each) for each in told["tuple"])
        if "dict" in told:
            return {name: self.value(each) for name, each in told["dict"].items()}
        return told["value"]

    def _tensor(self, told: dict[str, Any]) -> torch.Tensor:
        dtype, shape = _dtype(told["tensor"]), [int(each) for each in told["shape"]]
        if any(each < 0 for each in shape):
            raise ValueError(f"a shape of {shape}")
        size = math.prod(shape) * dtype.itemsize
        if size > _MOST_BYTES:
            raise ValueError(f"a tensor of {size} bytes")
        if not told["data"]:
            return torch.empty(shape, dtype=dtype, device=self.device)
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
