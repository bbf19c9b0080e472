"""A model file as a case of the engine: compiled here, checked against PyTorch, timed next to it.

Names load when first used: parsing a command line needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelmark.models.request import Baseline, Dump, Mode, ModelRequest, parse_baselines
    from kernelmark.models.result import ModelRun
    from kernelmark.models.run import run_model

__all__ = ["Baseline", "Dump", "Mode", "ModelRequest", "ModelRun", "parse_baselines", "run_model"]

_HOME = {
    "Baseline": "request",
    "Dump": "request",
    "Mode": "request",
    "ModelRequest": "request",
    "ModelRun": "result",
    "parse_baselines": "request",
    "run_model": "run",
}
"""Public name → the module of this package that holds it."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
