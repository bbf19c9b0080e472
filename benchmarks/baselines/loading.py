"""Loads a function of another library, or says why there is none here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from kernelmark import Unavailable
from kernelmark.harness import current_session

__all__ = ["load", "on_cuda"]


def load(module: str, name: str, *, install: str) -> Callable[..., Any] | Unavailable:
    """Give ``module.name`` on a CUDA device.

    Args:
        module: Dotted name of the module.
        name: The function in it.
        install: What to install where the library is missing.
    """
    library = module.partition(".")[0]
    missing = on_cuda(library)
    if missing is not None:
        return missing
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith(f"{library}."):
            return Unavailable(f"the installed {library} has no {error.name}")
        return Unavailable(f"{error.name} is not installed (pip install {install})")
    except ImportError as error:
        return Unavailable(f"{module} cannot be imported here: {str(error).splitlines()[0]}")
    if found is None:
        return Unavailable(f"the installed {library} has no {module}.{name}")
    return found


def on_cuda(library: str) -> Unavailable | None:
    """Say that ``library`` needs a CUDA device, where the run's is another."""
    device = current_session().device
    if device.kind == "cuda":
        return None
    return Unavailable(f"{library}'s kernels need a CUDA device; this run is on {device.torch_name}")
