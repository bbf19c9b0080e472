"""Hands things to another process through a file: what can be pickled, tensors on their device among it.

Tensors that are one object, or views of one storage, stay so on the other side. Functions travel by name, so a
lambda, a closure and whatever belongs to the main script cannot be sent.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

__all__ = ["receive", "send", "why_unsendable"]

_REASONS = (pickle.PicklingError, AttributeError, TypeError, RuntimeError, NotImplementedError)
"""What pickling raises for something that cannot be pickled; torch's storages raise the last two."""


class _Pickler(pickle.Pickler):
    """A pickler that finds out what only the main script has, which the other process would miss."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) or callable(obj):
            if getattr(obj, "__module__", None) == "__main__":
                name = getattr(obj, "__qualname__", type(obj).__qualname__)
                raise pickle.PicklingError(
                    f"{name} belongs to the main script, which no other process can import"
                )
        elif type(obj).__module__ == "__main__":
            raise pickle.PicklingError(
                f"a {type(obj).__qualname__} belongs to the main script, which no other process can import"
            )
        return NotImplemented


_AS_MODULE = SimpleNamespace(__name__="pickle", Pickler=_Pickler)
"""What torch takes for a pickle module."""


def send(thing: object, path: Path) -> str:
    """Write ``thing`` to ``path``; blank, or why it cannot be sent."""
    with open(path, "wb") as stream:
        return _write(thing, stream)


def why_unsendable(thing: object) -> str:
    """Say why ``thing`` cannot be sent; blank if it can."""
    return _write(thing, io.BytesIO())


def receive(path: Path) -> Any:
    """Read what :func:`send` wrote, which has to come from this program.

    Raises:
        Exception: whatever importing what it names raises.
    """
    import torch

    return torch.load(path, weights_only=False)


def _write(thing: object, stream: IO[bytes]) -> str:
    import torch

    try:
        # torch's own format keeps storages apart from the pickle, so that views go on sharing theirs
        torch.save(thing, stream, pickle_module=_AS_MODULE, pickle_protocol=5)
    except _REASONS as error:
        return str(error)
    return ""
