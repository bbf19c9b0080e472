"""The functions that a reading rests on, as they were before anything that is timed was loaded.

A timed module can replace ``time.perf_counter_ns`` or ``torch.cuda.synchronize`` when it is imported. The
instruments call the functions they took here, and afterwards the names must still mean the same: a program
that replaced one gets no reading, whatever it meant by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernelmark.errors import TimingError

__all__ = ["Reference", "capture", "verify"]


@dataclass(frozen=True, slots=True)
class Reference:
    """What ``owner.name`` was when it was captured."""

    owner: object
    name: str
    value: object

    def __str__(self) -> str:
        module = getattr(self.owner, "__module__", None)
        own = getattr(self.owner, "__qualname__", None) or getattr(self.owner, "__name__", repr(self.owner))
        return ".".join(part for part in (module, own, self.name) if part)


def capture(owner: object, *names: str) -> tuple[Reference, ...]:
    """Take ``owner``'s attributes ``names`` as they are now."""
    return tuple(Reference(owner, name, getattr(owner, name)) for name in names)


def verify(references: Iterable[Reference]) -> None:
    """Check that every captured name still means what it meant.

    Raises:
        TimingError: at least one was replaced; the message names each.
    """
    changed = [
        f"{each} is now {getattr(each.owner, each.name, 'gone')!r}"
        for each in references
        if getattr(each.owner, each.name, None) is not each.value
    ]
    if changed:
        raise TimingError(
            f"what the readings rest on was replaced while they were taken: {'; '.join(changed)};"
            " no time is given; time the implementation without that"
        )
