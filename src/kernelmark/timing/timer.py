"""What a timer is: it collects readings of one pass, then attributes them to samples.

A timer sees a call, a prepare callable and a device. It knows no case, no check and no statistics.
Collecting touches the device; attributing is a pure function over what was collected, so that it can
be tested with recorded activity and no device at all.
"""

from __future__ import annotations

import gc
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from kernelmark.device import Device
from kernelmark.errors import TimingError
from kernelmark.records import KernelShare

__all__ = [
    "SYNCHRONOUS_KINDS",
    "Bracket",
    "Call",
    "Reference",
    "Samples",
    "Scopes",
    "Timer",
    "capture",
    "collection_off",
    "do_nothing",
    "opened",
    "run_rounds",
    "verify",
]

SYNCHRONOUS_KINDS = frozenset({"cpu", "fake"})
"""The device kinds on which a call has done its work when it returns; every other kind has a queue."""


# --- what a reading rests on ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reference:
    """What ``owner.name`` was when it was captured, before anything that is timed was loaded.

    A timed module can replace ``time.perf_counter_ns`` or ``torch.cuda.synchronize`` when it is imported. The
    instruments call the functions they took then, and afterwards the names must still mean the same: a program
    that replaced one gets no reading, whatever it meant by it.
    """

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


_gc_disable, _gc_enable, _gc_isenabled = gc.disable, gc.enable, gc.isenabled
_ALWAYS = capture(time, "perf_counter_ns") + capture(gc, "disable", "enable", "isenabled")


# --- calls, and the one loop over rounds ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """One thing to time: ``run(*args)``, after ``reset()`` where there is one."""

    run: Callable[..., object]
    args: tuple[Any, ...] = ()
    reset: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """One pass, attributed: entry ``i`` of each column is sample ``i``; times in nanoseconds."""

    latency_ns: tuple[int | float, ...]
    device_busy_ns: tuple[int | float, ...]
    n_kernels: tuple[int, ...] | None = None
    n_copies: tuple[int, ...] | None = None
    n_memsets: tuple[int, ...] | None = None
    uncounted_copy_ns: tuple[int | float, ...] | None = None
    kernels: tuple[KernelShare, ...] = ()
    retries: int = 0


def do_nothing() -> None:
    """Do nothing; the call of which an instrument reads only itself."""


@dataclass(frozen=True, slots=True)
class Bracket:
    """What an instrument does around each call; between ``begin`` and ``end`` there is the call and nothing else.

    Args:
        begin: Called right before the call; what it returns is the one end of the reading.
        end: Called right after it; what it returns is the other end.
        done: Called once both are kept, before the next preparation.
        broken: Called where a call raises, to take back what ``begin`` has done.
        rehearse: Whether a call that does nothing goes through the same bracket right before each call, so that
            the instrument's own path is in the caches.
    """

    begin: Callable[[], Any]
    end: Callable[[], Any]
    done: Callable[[], object] = do_nothing
    broken: Callable[[], object] = do_nothing
    rehearse: bool = False


class Scopes:
    """A scope of a profiler around each call: what :class:`Bracket` begins and ends with.

    Args:
        make: Makes the context manager of a name.
        name_of: Gives the name of call ``i``, from 0.
    """

    def __init__(self, make: Callable[[str], Any], name_of: Callable[[int], str]) -> None:
        self._make, self._names = make, map(name_of, itertools.count())
        self._open: Any = None

    def enter(self) -> None:
        """Enter the scope of the next call."""
        self._open = self._make(next(self._names))
        self._open.__enter__()

    def leave(self) -> None:
        """Leave it; does nothing where none is open."""
        scope, self._open = self._open, None
        if scope is not None:
            scope.__exit__(None, None, None)


def run_rounds(
    call: Call, prepare: Callable[[], object], count: int, bracket: Bracket
) -> tuple[list[tuple[Any, Any]], object]:
    """Run ``count`` rounds of ``prepare()`` and the call in its bracket: the one loop that every reading comes from.

    What a call returns is kept until just before the next ``prepare``: then only one result is alive at a time, and
    freeing it is in no reading.

    Returns:
        The two ends of each reading, and what the last call returned.
    """
    begin, end, done, result = bracket.begin, bracket.end, bracket.done, None
    timed = (call.run, call.args)
    steps = ((do_nothing, ()), timed) if bracket.rehearse else (timed,)
    started = ended = None
    ends: list[tuple[Any, Any]] = []
    try:
        for _ in range(count):
            result = None
            prepare()
            for run, args in steps:
                started = begin()
                result = run(*args)
                ended = end()
            ends.append((started, ended))
            done()
    except BaseException:
        bracket.broken()
        raise
    return ends, result


class Timer(ABC):
    """One way of reading how long a call took.

    ``open`` before the first pass and ``close`` after the last one, also after an error; ``collect`` and then
    ``attribute`` is one pass. Subclasses fill in the hooks and never override ``sample``.
    """

    name: ClassVar[str]
    tells_gap: ClassVar[bool] = False
    """Whether busy time and latency are separate readings."""
    reads_empty: ClassVar[bool] = True
    """Whether a call that does nothing has a reading; False where the instrument refuses such a call."""
    own_references: ClassVar[tuple[Reference, ...]] = ()
    """What this timer calls besides the host's clock and the collector's switch, captured when it was imported."""

    clock: Callable[[], int] = staticmethod(time.perf_counter_ns)
    """The host's clock, for what the loop itself has to time (never a sample, but for the host timer)."""
    notes: tuple[str, ...] = ()
    """What a reading of this timer holds, where a reader of the row must know it; ``open`` fills it in."""
    last_result: object = None
    """What the last call of the last pass returned; ``collect`` leaves it here."""

    @abstractmethod
    def open(self, device: Device) -> None:
        """Take what the instrument needs.

        Raises:
            UnavailableError: this machine lacks it.
            InstrumentConflictError: another profiler holds it.
        """

    def close(self) -> None:  # noqa: B027 - a timer that takes nothing has nothing to give back
        """Give back what ``open`` took, all of it or part; does nothing if it is closed."""

    def sample(
        self, call: Call, prepare: Callable[[], object], count: int, *, count_copies: bool = False
    ) -> Samples:
        """Read ``count`` rounds of ``prepare()`` then ``call.run(*call.args)``.

        ``prepare`` does the reset and the flush; nothing it does is in the reading.

        Raises:
            TimingError: the reading cannot vouch for itself.
            Exception: whatever the call raises, unchanged.
        """
        return self.attribute(self.collect(call, prepare, count), count_copies=count_copies)

    @abstractmethod
    def collect(self, call: Call, prepare: Callable[[], object], count: int) -> Any:
        """Run the rounds (:func:`run_rounds`) and return what the instrument recorded, untouched.

        What the last call returned goes to ``last_result``.
        """

    @abstractmethod
    def attribute(self, collected: Any, *, count_copies: bool) -> Samples:
        """Turn what was recorded into samples; pure."""

    def notes_on(self, call: Call) -> tuple[str, ...]:
        """Say what a reader must know of the readings of this call, beside ``notes``; ask before closing."""
        return ()

    def take_result(self) -> object:
        """Return what the last call of the last pass returned, and forget it."""
        result, self.last_result = self.last_result, None
        return result

    def verify_own_references(self) -> None:
        """Check that the functions under the readings are still the ones that were there first.

        Raises:
            TimingError: something that was timed has replaced one.
        """
        verify(_ALWAYS + self.own_references)


@contextmanager
def opened(timer: Timer, device: Device) -> Iterator[None]:
    """Hold ``timer`` open; an error that is under way stays the error, whatever closing does."""
    try:
        timer.open(device)
        yield
    except BaseException as first:
        try:
            timer.close()
        except Exception as second:  # noqa: BLE001 - told with the first error, which says more
            first.add_note(f"closing the {timer.name} timer failed too: {second!r}")
        raise
    else:
        timer.close()
    finally:
        timer.take_result()


@contextmanager
def collection_off() -> Iterator[None]:
    """Keep the garbage collector out of a pass, and leave it as it was, also after an error."""
    was_on = _gc_isenabled()
    _gc_disable()
    try:
        yield
    finally:
        if was_on:
            _gc_enable()
