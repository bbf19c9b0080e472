"""The engine: cases, implementations, and the order in which they are checked and timed.

Names load when first used: collecting cases needs the manifest and the registry, and neither torch nor a device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelmark.lazy import lazy

if TYPE_CHECKING:
    from kernelmark.harness.ambient import current_session, session_in_use, use_session
    from kernelmark.harness.case import Case, Workload, seed_of
    from kernelmark.harness.functions import compare
    from kernelmark.harness.implementation import Implementation, Unavailable
    from kernelmark.harness.library import Entry, Library, cases, library_at
    from kernelmark.harness.plan import Plan, Planned, make_plan
    from kernelmark.harness.runner import Comparison, Runner, run_plan
    from kernelmark.harness.session import Session, SessionOptions

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
    "session_in_use",
    "use_session",
]

__getattr__, __dir__ = lazy(__name__)
