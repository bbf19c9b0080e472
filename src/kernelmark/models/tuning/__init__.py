"""A search over a schedule's parameters, with the engine as judge.

Names load when first used: parsing a command line needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelmark.lazy import lazy

if TYPE_CHECKING:
    from kernelmark.models.request import TuneRequest
    from kernelmark.models.tuning.run import Found, Line, tune_model

__all__ = ["Found", "Line", "TuneRequest", "tune_model"]

__getattr__, __dir__ = lazy(__name__)
