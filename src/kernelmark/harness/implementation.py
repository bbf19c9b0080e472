"""One way to run a case, and the value that stands for one that cannot be run here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelmark.errors import UsageError

if TYPE_CHECKING:
    from kernelmark.verify import Guard

__all__ = ["Implementation", "Unavailable", "as_implementation"]


@dataclass(frozen=True, slots=True, eq=False)
class Implementation:
    """One way to run a case.

    Args:
        run: The callable that is checked and timed.
        args: What ``run`` gets: ``None`` for the case's inputs, ``()`` for nothing, else exactly these.
        reset: Called before each check and before each timed round's flush; restores what ``run`` overwrites.
        noncomparable_reason: Why the answers cannot be compared with the reference's although the speed is of
            interest; the row then has no ratio.
        owned_outputs: Tensors that ``run`` writes its answer into. They are poisoned before each check, so
            that an answer left over from an earlier call does not pass.
        guards: What its calls are held against besides what holds for all: buffers between guard bytes
            (``verify.guards.Canaries``), inputs renewed by ``reset`` (``verify.Renewed``), threads
            (``verify.conduct``).
        backend: How it computes, in a few words for the report.

    Raises:
        UsageError: an argument that no run could use.
    """

    run: Callable[..., Any]
    args: tuple[Any, ...] | None = None
    reset: Callable[[], Any] | None = None
    noncomparable_reason: str | None = None
    owned_outputs: tuple[Any, ...] = ()
    guards: tuple[Guard, ...] = ()
    backend: str = ""

    def __post_init__(self) -> None:
        if not callable(self.run):
            raise UsageError(f"Implementation.run must be callable, got {_shown(self.run)}")
        if self.args is not None and not isinstance(self.args, tuple):
            raise UsageError(
                f"Implementation.args must be a tuple or None, got {_shown(self.args)};"
                " for one argument write args=(x,), for none args=()"
            )
        if self.reset is not None and not callable(self.reset):
            raise UsageError(f"Implementation.reset must be callable or None, got {_shown(self.reset)}")
        reason = self.noncomparable_reason
        if reason is not None and (not isinstance(reason, str) or not reason.strip()):
            raise UsageError(
                f"noncomparable_reason must say why the answers differ in meaning, got {reason!r};"
                " leave it out for an implementation that can be checked"
            )
        if self.renewed and (self.reset is None or not self.args):
            raise UsageError("a guard of renewed inputs tells what reset put into args; give both of them")
        if not isinstance(self.owned_outputs, tuple):
            raise UsageError(
                f"Implementation.owned_outputs must be a tuple of tensors, got {_shown(self.owned_outputs)}"
            )

    @property
    def renewed(self) -> bool:
        """Whether ``reset`` puts other values into ``args`` for each call."""
        return any(guard.renews for guard in self.guards)


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Stands where an implementation would, and says why there is none on this machine.

    Raises:
        UsageError: the reason is blank.
    """

    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str) or not self.reason.strip():
            raise UsageError(f"Unavailable needs a reason, got {self.reason!r}")


def as_implementation(name: str, value: object) -> Implementation | Unavailable:
    """Turn what a user passed under ``name`` into an implementation.

    Raises:
        UsageError: it is neither a callable nor an implementation.
    """
    if isinstance(value, Implementation | Unavailable):
        return value
    if callable(value):
        return Implementation(run=value)
    raise UsageError(
        f"implementation {name!r} must be a callable, an Implementation or an Unavailable, got {_shown(value)}"
    )


def _shown(value: object) -> str:
    """Name a wrong value without printing the contents of a tensor."""
    text = repr(value)
    return f"{type(value).__name__} {text}" if len(text) <= 60 and "\n" not in text else type(value).__name__
