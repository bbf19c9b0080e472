"""One pass, and what every way of taking times does around it: the part that no loop writes again.

A round is ``prepare → run(*args)``; a pass is rounds read by the timer with garbage collection off and the
device's state noted before and after. Which rounds there are, and in which order, belongs to the loops.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kernelmark.device import Device
from kernelmark.errors import TimingError
from kernelmark.records import PassRecord
from kernelmark.timing.references import capture, verify
from kernelmark.timing.schedule import Slot
from kernelmark.timing.timer import Call, Samples, Timer

__all__ = [
    "AfterPass",
    "Passes",
    "Round",
    "collection_off",
    "do_nothing",
    "opened",
    "reset_then_flush",
    "verify_references",
]

AfterPass = Callable[[str, PassRecord, object], object]
"""Called after each pass, outside all timing: name, record, and what the pass's last call returned."""

_gc_disable, _gc_enable, _gc_isenabled = gc.disable, gc.enable, gc.isenabled
_REFERENCES = capture(gc, "disable", "enable", "isenabled")


@dataclass(frozen=True, slots=True)
class Round:
    """One implementation, ready to run: ``prepare`` is what comes before each call."""

    call: Call
    prepare: Callable[[], object]

    def run(self) -> None:
        """Run one round untimed, and drop what it returns."""
        self.prepare()
        self.call.run(*self.call.args)


@dataclass(frozen=True, slots=True)
class Passes:
    """Runs rounds and passes, over what they all share."""

    device: Device
    timer: Timer
    after_pass: AfterPass | None = None
    count_copies: bool = False

    def warm_up(self, each: Round, count: int) -> None:
        """Run ``count`` rounds untimed."""
        for _ in range(count):
            each.run()
        self.device.synchronize()

    def sample(self, each: Round, count: int) -> Samples:
        """Read ``count`` rounds.

        Raises:
            TimingError: there is not one reading for each of them.
        """
        samples = self.timer.sample(each.call, each.prepare, count, count_copies=self.count_copies)
        if len(samples.latency_ns) != count:
            raise TimingError(
                f"the {self.timer.name} timer gave {len(samples.latency_ns)} readings for {count} calls;"
                " none of them can be told from the others, so no time is given"
            )
        return samples

    def one_pass(
        self, each: Round, slot: Slot, count: int, *, lead_in: int = 0, familiar: Collection[str] = ()
    ) -> tuple[PassRecord, Samples]:
        """Run one pass of ``count`` samples, after ``lead_in`` untimed rounds; ``familiar`` are its own workers."""
        self.device.settle(familiar)
        before = self.device.telemetry()
        with collection_off():
            if lead_in:
                self.warm_up(each, lead_in)
            samples = self.sample(each, count)
        record = PassRecord(
            block=slot.block,
            position=slot.position,
            latency_ns=samples.latency_ns,
            device_busy_ns=samples.device_busy_ns,
            n_kernels=samples.n_kernels,
            n_copies=samples.n_copies,
            n_memsets=samples.n_memsets,
            uncounted_copy_ns=samples.uncounted_copy_ns,
            retries=samples.retries,
            before=before,
            after=self.device.telemetry(),
        )
        if self.after_pass is None:
            self.timer.take_result()
        else:  # no name here may hold the result: it must be gone before the next pass begins
            self.after_pass(slot.name, record, self.timer.take_result())
        return record, samples


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


def verify_references(timer: Timer) -> None:
    """Check that the functions under the readings are still the ones that were there first.

    Raises:
        TimingError: something that was timed has replaced one.
    """
    verify(_REFERENCES)
    timer.verify_own_references()


def reset_then_flush(
    reset: Callable[[], object] | None, flush: Callable[[], object] | None
) -> Callable[[], object]:
    """Return what runs before each call: the reset, then the flush, which evicts what the reset wrote."""
    if reset is None or flush is None:
        return reset or flush or do_nothing

    def prepare() -> None:
        reset()
        flush()

    return prepare


def do_nothing() -> None:
    """Do nothing; the call of which an instrument reads only itself."""
