"""A search over a schedule's parameters, with the engine as judge.

Names load when first used: parsing a command line needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelmark.models.tuning.found import Found, Line
    from kernelmark.models.tuning.request import TuneRequest
    from kernelmark.models.tuning.run import tune_model

__all__ = ["Found", "Line", "TuneRequest", "tune_model"]

_HOME = {"Found": "found", "Line": "found", "TuneRequest": "request", "tune_model": "run"}
"""Public name → the module of this package that holds it."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
