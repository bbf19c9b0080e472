"""What a comparison will do, decided before anything runs: every error of use is found here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelmark.errors import UsageError
from kernelmark.harness.case import Case
from kernelmark.harness.implementation import Implementation, Unavailable, as_implementation
from kernelmark.records import Role

__all__ = ["Plan", "Planned", "make_plan", "named"]

SINGLE_NAME = "baseline"
"""What an implementation passed without a name is called."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One implementation with the name that its row will have."""

    name: str
    role: Role
    implementation: Implementation | Unavailable
    is_reference: bool = False
    """Whether it is the case's own reference, called as the reference is, so that checking it proves nothing."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One comparison: ours, where there is one, then the others in the order they were given."""

    case: Case
    entries: tuple[Planned, ...]
    leave_out: bool = False
    """Whether what fails is left out and the others are timed, rather than that all of it stops."""

    @property
    def ours(self) -> Planned:
        """The implementation that the others are compared with."""
        return self.entries[0]


def make_plan(
    case: Case,
    ours: tuple[str, Implementation],
    others: Mapping[str, object],
    *,
    leave_out: bool = False,
) -> Plan:
    """Decide what to run.

    Raises:
        UsageError: a name is reserved, blank or no text; a value cannot be run; ours says that it cannot be
            compared.
    """
    ours_name, ours_implementation = ours
    if ours_implementation.noncomparable_reason is not None:
        raise UsageError(
            f"{ours_name!r} is what the others are compared with, so it cannot have a noncomparable_reason"
            f" ({ours_implementation.noncomparable_reason!r}); say it in the case's verification() instead"
        )
    entries = [Planned(ours_name, Role.OURS, ours_implementation)]
    for name, value in others.items():
        _check_name(name, ours_name)
        implementation = as_implementation(name, value)
        entries.append(Planned(name, Role.BASELINE, implementation, _is_reference(implementation, case)))
    return Plan(case, tuple(entries), leave_out)


def named(implementations: object) -> dict[str, object]:
    """Turn what was passed to ``compare`` into a mapping; a single implementation is called ``baseline``.

    Raises:
        UsageError: it is a sequence, which has no names.
    """
    if isinstance(implementations, Mapping):
        return dict(implementations)
    if isinstance(implementations, list | tuple | set):
        raise UsageError(
            f"compare() takes a mapping from name to implementation, or one implementation;"
            f" got a {type(implementations).__name__} of {len(implementations)}"
        )
    return {SINGLE_NAME: implementations}


def _check_name(name: Any, reserved: str) -> None:
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"an implementation's name must be text that is not blank, got {name!r}")
    if name == reserved:
        raise UsageError(f"the name {name!r} is reserved for the op itself; give this implementation another")


def _is_reference(implementation: Implementation | Unavailable, case: Case) -> bool:
    return (
        isinstance(implementation, Implementation)
        and implementation.run is case.reference
        and implementation.args is None
        and implementation.reset is None
        and implementation.noncomparable_reason is None
    )
