"""What a worker leaves for its parent in the folder they share, besides the records."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["FACTS", "OUTCOME", "READY", "Outcome"]

READY, FACTS, OUTCOME = "ready", "facts.json", "outcome.json"
"""The files a worker leaves: it has started up; what it found out; how it ended."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a worker ended, as far as it can tell itself."""

    error: str = ""
    """The class of what stopped it; blank if nothing did."""
    message: str = ""
    traceback: str = ""
    notes: dict[str, list[str]] = field(default_factory=dict)
    """What a reader must know about a row, by the row's name."""
