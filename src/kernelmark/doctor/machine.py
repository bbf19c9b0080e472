"""What an examination looks at and what it says, as values: a machine, read once or made up by a test, and findings.

Reading imports torch, opens the best device and tries each timer on it. It judges nothing.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from kernelmark import probe
from kernelmark.device import Device
from kernelmark.device.cpu_facts import available_cpus, busy_seconds
from kernelmark.errors import TimingError, UnavailableError, UsageError
from kernelmark.records import DeviceRecord, ProbeReading, Telemetry
from kernelmark.timing.profilers import in_bearable_order
from kernelmark.timing.timer import Timer
from kernelmark.timing.timers import TIMERS, TimerEntry, open_timer

__all__ = [
    "Finding",
    "Machine",
    "Severity",
    "TimerTrial",
    "TorchFacts",
    "either",
    "read_machine",
    "share_taken",
    "text_of",
    "try_timers",
    "worst",
]

_WATCH_S = 0.4  # the system counts in steps of 10 ms, so this reads a share of two processors to 1.3 %


class Severity(StrEnum):
    """How grave a finding is, the lightest first."""

    OK = "ok"
    NOTE = "note"
    """Something that could be better, and spoils no reading."""
    WARNING = "warning"
    """Something is measured wrongly or with doubt, or not at all though it should be."""
    MISSING = "missing"
    """Something that the best device of this machine cannot be measured without."""


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
            raise UsageError(f"{self.what!r} is a {self.severity} without a fix; say what mends it")


def either(what: str, well: str | None, severity: Severity, found: str, fix: str) -> Finding:
    """Give the finding that all is ``well``, in these words; where there are none, the grave one."""
    return Finding(what, Severity.OK, well) if well else Finding(what, severity, found, fix)


def worst(findings: Iterable[Finding]) -> Severity:
    """Give the gravest severity; ``ok`` where there is no finding."""
    return max((each.severity for each in findings), key=tuple(Severity).index, default=Severity.OK)


def text_of(path: Path) -> str:
    """Read a file of the system's; blank where it is not there, or not for this user."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class TorchFacts:
    """What torch says of itself."""

    version: str
    cuda: str | None = None
    """The CUDA toolkit that it is built with."""
    hip: str | None = None
    devices: int = 0
    """How many CUDA (or AMD) devices it can use."""
    threads: int = 1


@dataclass(frozen=True, slots=True)
class TimerTrial:
    """One timer that serves the device: whether it works here, and if not, its own words for why."""

    name: str
    is_default: bool
    reads: str
    failure: str = ""
    unavailable: bool = False
    """The failure is that something is not installed or not there, rather than a reading in doubt."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything that the subjects look at.

    ``device`` is the best one there is; ``probe`` the reading that shows whether its caches are cold after a
    flush, or the reason why there is none.
    """

    root: Path
    environ: Mapping[str, str]
    version: Callable[[str], str | None]
    """Version of an installed distribution."""
    module: Callable[[str], probe.Probe]
    program: Callable[[str], str | None]
    cpus: Collection[int]
    torch: TorchFacts | None = None
    device: DeviceRecord | None = None
    telemetry: Telemetry = field(default_factory=Telemetry)
    timers: tuple[TimerTrial, ...] = ()
    probe: ProbeReading | str = ""
    driver_cuda: tuple[int, int] | None = None
    """The newest CUDA that the driver can run."""
    taken_by_others: float | None = None
    compiler: str | None = None
    """The C++ compiler that kernel files are built with."""
    openmp: bool = False
    """Whether that compiler builds with OpenMP."""

    @property
    def has_nvidia(self) -> bool:
        """Whether the system shows an NVIDIA driver or device, whatever torch makes of it."""
        marks = ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg")
        return self.driver_cuda is not None or any((self.root / mark).exists() for mark in marks)

    @property
    def measures_nvidia(self) -> bool:
        """Whether the best device is an NVIDIA one."""
        hip = self.torch is not None and self.torch.hip is not None
        return self.device is not None and self.device.kind == "cuda" and not hip


def read_machine(root: Path = Path("/")) -> Machine:
    """Read this machine; takes some seconds, most of them for importing torch and for the flush of a CPU."""
    cpus = available_cpus()
    taken = share_taken(cpus, root)  # before torch's own threads are there
    compiler = _cpp_compiler()
    bare = Machine(
        root=root,
        environ=os.environ,
        version=_version,
        module=probe.module,
        program=shutil.which,
        cpus=cpus,
        driver_cuda=_driver_cuda(),
        taken_by_others=taken,
        compiler=compiler,
        openmp=compiler is not None and _builds_openmp(compiler),
    )
    return _with_device(bare) if probe.module("torch") else bare


def share_taken(
    cpus: Collection[int],
    root: Path = Path("/"),
    *,
    watch_s: float = _WATCH_S,
    sleep: Callable[[float], object] = time.sleep,
) -> float | None:
    """Say which part of the processors' time goes to other processes now; ``None`` if nobody counts it."""
    before, own = busy_seconds(cpus, root), time.process_time()
    sleep(watch_s)
    after, own = busy_seconds(cpus, root), time.process_time() - own
    if before is None or after is None:
        return None
    return max(0.0, after - before - own) / (watch_s * len(cpus))


def _with_device(bare: Machine) -> Machine:
    import torch

    from kernelmark.device import measure_probe, open_device

    usable = torch.cuda.is_available()
    facts = TorchFacts(
        version=str(torch.__version__),
        cuda=torch.version.cuda,
        hip=torch.version.hip,
        devices=torch.cuda.device_count() if usable else 0,
        threads=torch.get_num_threads(),
    )
    device = open_device(None)
    device.synchronize()  # now this process is on the device, and is not taken for a neighbour
    telemetry = device.telemetry()  # before this examination heats anything
    timers = try_timers(device)
    try:
        reading: ProbeReading | str = measure_probe(device)
    except UnavailableError as error:
        reading = str(error)
    return replace(
        bare, torch=facts, device=device.describe(), telemetry=telemetry, timers=timers, probe=reading
    )


def try_timers(
    device: Device,
    *,
    entries: Sequence[TimerEntry] = TIMERS,
    open_: Callable[[str, Device], Timer] = open_timer,
) -> tuple[TimerTrial, ...]:
    """Try every timer that serves ``device``."""
    trials = []
    for entry in in_bearable_order(entries):
        if not entry.serves_kind(device.kind):
            continue
        failure: Exception | None = None
        try:
            timer = open_(entry.name, device)
            try:
                timer.open(device)
            finally:
                timer.close()
        except (UnavailableError, TimingError) as error:
            failure = error
        default, absent = entry.name == device.default_timer, isinstance(failure, UnavailableError)
        trials.append(TimerTrial(entry.name, default, entry.reads, str(failure or ""), absent))
    return tuple(trials)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _cpp_compiler() -> str | None:
    """Give the C++ compiler that kernel files are built with: ``CXX``, or the first of the usual ones."""
    named = os.environ.get("CXX", "").split()[:1]
    return next(filter(None, map(shutil.which, named or ("g++", "clang++", "c++"))), None)


def _builds_openmp(compiler: str) -> bool:
    with tempfile.TemporaryDirectory(prefix="kernelmark-openmp-") as folder:
        command = [compiler, "-fopenmp", "-x", "c++", "-", "-o", f"{folder}/program"]
        program = b"#include <omp.h>\nint main() { return omp_get_max_threads() == 0; }"
        return subprocess.run(command, input=program, capture_output=True, check=False).returncode == 0


def _driver_cuda() -> tuple[int, int] | None:
    """Ask the driver which CUDA it can run; ``None`` where there is no driver."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return None
    version = ctypes.c_int(0)
    if library.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return None
    return version.value // 1000, version.value % 1000 // 10
