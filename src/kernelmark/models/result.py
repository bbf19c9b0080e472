"""What one model's run found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelmark.harness import Comparison
from kernelmark.models.request import ModelRequest
from kernelmark.models.work import ModelWork
from kernelmark.records import Row
from kernelmark.verify import Tolerance
from torchsched.failures import Stage

__all__ = ["OURS", "ModelRun"]

OURS = "mlir"
"""What the row of the compiled model is called."""


@dataclass(frozen=True, slots=True)
class ModelRun:
    """What one model's run found."""

    request: ModelRequest
    comparison: Comparison
    tolerance: Tolerance
    seconds: Mapping[Stage, float]
    """What each stage of compiling took; none of it is in a call. Empty where no code was compiled here."""
    work: ModelWork | None
    """None where nothing was timed."""
    folder: Path | None
    """Where the run is kept."""

    @property
    def ours(self) -> Row:
        """The row that the others are compared with: the compiled model's, or inductor's on a device without it."""
        return self.comparison.rows[0]
