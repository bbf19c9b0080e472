"""A model file as a case of the engine: compiled here, checked against PyTorch, timed next to it.

Names load when first used: parsing a command line needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelmark.lazy import lazy

if TYPE_CHECKING:
    from kernelmark.models.request import Baseline, Dump, Mode, ModelRequest, parse_baselines
    from kernelmark.models.result import ModelRun
    from kernelmark.models.run import run_model

__all__ = ["Baseline", "Dump", "Mode", "ModelRequest", "ModelRun", "parse_baselines", "run_model"]

__getattr__, __dir__ = lazy(__name__)
