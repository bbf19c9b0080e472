"""What an examination says: findings, how grave each is, and its fix. Knows no machine and prints nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kernelmark.errors import UsageError

__all__ = ["Finding", "Severity", "worst"]


class Severity(StrEnum):
    """How grave a finding is, the lightest first."""

    OK = "ok"
    NOTE = "note"
    """Something that could be better, and spoils no reading."""
    WARNING = "warning"
    """Something is measured wrongly or with doubt, or not at all though it should be."""
    MISSING = "missing"
    """Something that the best device of this machine cannot be measured without."""


_ORDER = tuple(Severity)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, what was found, and what mends it.

    Raises:
        UsageError: it is not well and has no fix.
    """

    what: str
    severity: Severity
    found: str
    fix: str = ""

    def __post_init__(self) -> None:
        if self.severity is not Severity.OK and not self.fix:
            raise UsageError(
                f"the finding {self.what!r} is a {self.severity} without a fix; say what mends it"
            )


def worst(findings: Iterable[Finding]) -> Severity:
    """Give the gravest severity; ``ok`` where there is no finding."""
    return max((each.severity for each in findings), key=_ORDER.index, default=Severity.OK)
