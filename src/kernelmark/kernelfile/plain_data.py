"""Values as plain data: a table in JSON, and the bytes of tensors one after the other in a file beside it.

Nothing is executed when they are read, and nothing is believed: forms and sizes are checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import torch

__all__ = ["MOST_BYTES", "NoPlainDataError", "Reader", "TooLargeError", "Writer"]

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
        raise NoPlainDataError(f"a {type(value).__name__} is no plain data")

    def _tensor(self, tensor: torch.Tensor) -> dict[str, Any]:
        self._written += tensor.numel() * tensor.element_size()
        if self._written > MOST_BYTES:
            raise TooLargeError(f"its data are more than {MOST_BYTES >> 30} GiB")
        plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
        plain.reshape(-1).view(torch.uint8).numpy().tofile(self.stream)
        return {"tensor": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}


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
        if size > MOST_BYTES:
            raise ValueError(f"a tensor of {size} bytes")
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
