"""What a worker of a search is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelmark.models.request import ModelRequest
from kernelmark.models.tuning.space import Candidate
from kernelmark.records import RunHeader
from kernelmark.timing import Budget
from torchsched.elements import Element

__all__ = ["MEASURE", "TuneJob"]

MEASURE = "measure"
"""The stage of a worker in which everything is compiled, and timed."""


@dataclass(frozen=True, slots=True)
class TuneJob:
    """Compile each candidate and check its answer; with a budget, compile all and time them in one interleaved run."""

    request: ModelRequest
    element: Element
    header: RunHeader
    case_id: str
    candidates: tuple[Candidate, ...]
    """Where they are timed, the first is what the others are compared with."""
    limit_s: float
    """Seconds that one of them may take to be compiled and checked."""
    known: Mapping[str, str] = field(default_factory=dict)
    """Digest of code that has been checked → the label of the candidate that has it."""
    budget: Budget | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What a report says of a run that is timed."""
