"""The way in for models: a model file as a case of the engine, compiled by any compiler, checked against PyTorch.

Names load when first used: parsing a command line needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelmark.lazy import lazy

if TYPE_CHECKING:
    from kernelmark.models.request import Baseline, Dump, Mode, ModelRequest, Show, parse_baselines
    from kernelmark.models.run import ModelRun, print_model, run_model

__all__ = [
    "Baseline",
    "Dump",
    "Mode",
    "ModelRequest",
    "ModelRun",
    "Show",
    "parse_baselines",
    "print_model",
    "run_model",
]

__getattr__, __dir__ = lazy(__name__)
