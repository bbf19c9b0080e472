"""What is asked of a search. Imports no torch, and runs nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernelmark.errors import UsageError
from kernelmark.models.request import Mode, ModelRequest

__all__ = ["DEFAULT_BUDGET_S", "DEFAULT_CANDIDATES", "DEFAULT_LIMIT_S", "TuneRequest"]

DEFAULT_BUDGET_S = 600.0
DEFAULT_CANDIDATES = 32
DEFAULT_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """One search.

    Raises:
        UsageError: a number that no search could use, or a model request that says how to run it.
    """

    model: ModelRequest
    """The model, its inputs, the schedule and its check; values given there are held."""
    search: Mapping[str, str | None] = field(default_factory=dict)
    """Parameters to search, with the values to try as text; nothing searches all that have choices."""
    candidates: int = DEFAULT_CANDIDATES
    budget_s: float = DEFAULT_BUDGET_S
    """Seconds for checking and racing; the confirmation is not counted."""
    limit_s: float = DEFAULT_LIMIT_S
    """Seconds that one candidate may take to be compiled and checked, and again to be compiled and measured."""
    seed: int = 0
    """What the order of the candidates is drawn with."""
    write: Path | None = None
    """Where the descriptor goes; by default into the folder of the run."""
    out: Path | None = None
    """Folder to keep the search in."""
    resume: bool = False

    def __post_init__(self) -> None:
        if self.model.mode is not Mode.IMPORT:
            raise UsageError("a search compiles the model as a whole; leave --torch-compile out")
        if self.model.device != "cpu":
            raise UsageError(f"--device {self.model.device}: schedules make code for the CPU")
        for name, value, least in (("candidates", self.candidates, 2), ("seed", self.seed, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"--{name} {value}: give a whole number of at least {least}")
        for name, seconds in (("budget", self.budget_s), ("limit", self.limit_s)):
            if not (math.isfinite(seconds) and seconds > 0):
                raise UsageError(f"--{name} {seconds}: give a number of seconds above 0")

    @property
    def folder(self) -> Path:
        """Where the search is kept."""
        if self.out is not None:
            return self.out
        pipeline = "-".join(Path(each).stem for each in self.model.pipeline)
        return Path("runs") / "tune" / f"{self.model.name}-{pipeline}"

    @property
    def descriptor(self) -> Path:
        """Where the descriptor goes."""
        return self.write or self.folder / "tuned.yaml"
