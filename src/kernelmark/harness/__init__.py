"""The engine: cases, implementations, and the order in which they are checked and timed.

Names load when first used: collecting cases needs the manifest and the registry, and neither torch nor a device.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelmark.harness.case import Case, Workload, seed_of
    from kernelmark.harness.functions import compare
    from kernelmark.harness.implementation import Implementation, Unavailable
    from kernelmark.harness.library import Entry, Library, cases, library_at
    from kernelmark.harness.plan import Plan, Planned, make_plan
    from kernelmark.harness.runner import Comparison, Runner, run_plan
    from kernelmark.harness.session import Session, SessionOptions, current_session, use_session

__all__ = [
    "Case",
    "Comparison",
    "Entry",
    "Implementation",
    "Library",
    "Plan",
    "Planned",
    "Runner",
    "Session",
    "SessionOptions",
    "Unavailable",
    "Workload",
    "cases",
    "compare",
    "current_session",
    "library_at",
    "make_plan",
    "run_plan",
    "seed_of",
    "use_session",
]

_HOME = {
    "Case": "case",
    "Comparison": "runner",
    "Entry": "library",
    "Implementation": "implementation",
    "Library": "library",
    "Plan": "plan",
    "Planned": "plan",
    "Runner": "runner",
    "Session": "session",
    "SessionOptions": "session",
    "Unavailable": "implementation",
    "Workload": "case",
    "cases": "library",
    "compare": "functions",
    "current_session": "session",
    "library_at": "library",
    "make_plan": "plan",
    "run_plan": "runner",
    "seed_of": "case",
    "use_session": "session",
}
"""Public name → the module of this package that holds it."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
