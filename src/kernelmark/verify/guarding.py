"""What a guard is: something held against every call whose outputs are looked at, whatever the way in.

The engine sets up the guards that all implementations have, adds those that an implementation brings, and runs them
as one tuple. Nothing here imports torch, so that an implementation can be described anywhere.
"""

from __future__ import annotations

from typing import Any

from kernelmark.errors import VerificationError

__all__ = ["Guard"]


class Guard:
    """Entered before a call and left after it; each of its hooks may be left as it is."""

    def enter(self) -> None:
        """Get ready for a call."""

    def exit(self, who: str) -> VerificationError | None:
        """Say what ``who`` did that no call may do, and put it right; also where a timed call is looked at.

        It is not entered before timed calls.
        """
        return None

    def given(self) -> tuple[Any, ...] | None:
        """Give what the last call was called with, where that is other values for each call."""
        return None

    def facts(self) -> tuple[str, ...]:
        """Say what a reader of the row must know."""
        return ()
