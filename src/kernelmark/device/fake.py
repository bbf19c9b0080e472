"""A device and a clock for tests: every call goes into one log, and time passes only when told to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from kernelmark.records import DeviceRecord, Telemetry

__all__ = ["FakeClock", "FakeDevice"]


@dataclass(slots=True)
class FakeClock:
    """Returns ``now_ns``; reading it costs ``tick_ns``."""

    now_ns: int = 0
    tick_ns: int = 0

    def __call__(self) -> int:
        """Read the clock."""
        now = self.now_ns
        self.now_ns += self.tick_ns
        return now

    def advance(self, ns: int) -> None:
        """Let ``ns`` nanoseconds pass."""
        self.now_ns += ns


@dataclass(slots=True)
class _FakeFlusher:
    device: FakeDevice
    size_bytes: int = 1 << 20

    def __call__(self) -> None:
        self.device.log.append("flush")
        self.device.clock.advance(self.device.flush_ns)


@dataclass(slots=True)
class FakeDevice:
    """A device that logs ``flush``, ``synchronize``, ``telemetry`` and ``release_memory`` in order.

    With ``kind="fake"`` or ``"cpu"`` work is done when a call returns. With any other kind it is an
    asynchronous device: :meth:`queue` puts work on it, and ``synchronize`` lets the time of that work pass.
    """

    kind: str = "fake"
    torch_name: str = "cpu"
    default_timer: str = "host"
    clock: FakeClock = field(default_factory=FakeClock)
    log: list[str] = field(default_factory=list)
    flush_ns: int = 0
    queued_ns: int = 0
    failure: BaseException | None = None
    """Raised by the next ``synchronize``, as a device reports a launch that failed."""
    clock_mhz: float | None = 1000.0
    """What the telemetry tells."""

    def describe(self) -> DeviceRecord:
        """Say that it is fake."""
        return DeviceRecord(kind=self.kind, name="a fake device")

    def queue(self, ns: int) -> None:
        """Put ``ns`` nanoseconds of work on the device."""
        self.queued_ns += ns

    def synchronize(self) -> None:
        """Let the time of the queued work pass, then raise ``failure`` once if there is one."""
        self.log.append("synchronize")
        self.clock.advance(self.queued_ns)
        self.queued_ns = 0
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure

    def settle(self, familiar: Collection[str] = ()) -> None:
        """Do nothing: a fake device has no threads."""

    def working(self) -> frozenset[str]:
        """Name none."""
        return frozenset()

    def flusher(self) -> _FakeFlusher:
        """Give a flusher that logs, and takes ``flush_ns`` of the clock."""
        return _FakeFlusher(self)

    def telemetry(self) -> Telemetry:
        """Log, and tell ``clock_mhz``."""
        self.log.append("telemetry")
        return Telemetry(clock_mhz=self.clock_mhz)

    def release_memory(self) -> None:
        """Log."""
        self.log.append("release_memory")
