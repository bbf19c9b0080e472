"""Carries an audit out: one process after another, each with the instruments that may share it.

The processes do the reading; this one starts them, one at a time, and understands how they end.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import metadata
from pathlib import Path

from kernelmark.audit.calls import calls_for
from kernelmark.audit.instruments import Instrument, Place, default_reference, instruments_for
from kernelmark.audit.ncu import Sections, errors_in, find_ncu, ncu_command, ncu_version, parse_ncu
from kernelmark.audit.nvbench import parse_nvbench
from kernelmark.audit.readings import Failure, Said, from_lines
from kernelmark.audit.result import Audit, Setting, conclude
from kernelmark.audit.work import NVBENCH_JSON, READINGS, Request
from kernelmark.device import Device
from kernelmark.errors import RecordError, TimingError, UsageError
from kernelmark.harness.provenance import environment, now
from kernelmark.process import Ended, importing_the_same, run_child

__all__ = ["AuditOptions", "audit"]

_CHILD = "import sys; from kernelmark.audit.work import work; work(sys.argv[1])"
_LOG, _NCU_CSV = "output.txt", "ncu.csv"

_LIMIT_S = 240.0
"""For one process. The longest, NVBench with 25 rows of 2 s, took a minute where it was measured."""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What to read, how often, and what to keep.

    Args:
        runs: How often each instrument reads each call.
        against: The instrument that the others are measured against; the default order without it.
        only: Names of instruments; all that serve the device without it.
        keep: Folder for what ncu and NVBench wrote themselves, and for the output of a process that died.
    """

    runs: int = 5
    against: str | None = None
    only: tuple[str, ...] = ()
    keep: Path | None = None

    def __post_init__(self) -> None:
        if isinstance(self.runs, bool) or not isinstance(self.runs, int) or self.runs < 1:
            raise UsageError(f"runs={self.runs!r} (--repeat): give a whole number of at least 1")


@dataclass(frozen=True, slots=True)
class _Job:
    """One process and what it is to read."""

    instruments: tuple[str, ...]
    place: Place
    folder: Path = field(default_factory=Path)


def audit(
    device: Device,
    options: AuditOptions | None = None,
    *,
    told: Callable[[str], object] = lambda text: None,
) -> Audit:
    """Read the five calls with every instrument that this machine has.

    Args:
        device: Which one is read on; the processes open it themselves.
        options: How often, against what, with which instruments.
        told: Called with the names of the instruments of each process before it starts.

    Raises:
        UsageError: an option names an instrument that does not serve this device.
        RecordError: the folder to keep things in cannot be made.
    """
    options = options or AuditOptions()
    setting = _setting(device, options)
    if options.keep is not None:
        _make(options.keep)
    said: list[Said] = []
    for job in _jobs(setting.instruments):
        told(", ".join(job.instruments))
        with _scratch() as folder:
            said += _run(_Job(job.instruments, job.place, folder), device, setting, options.keep)
    return conclude(setting, said)


def _setting(device: Device, options: AuditOptions) -> Setting:
    all_here = instruments_for(device.kind)
    names = [each.name for each in all_here]
    for name in (*options.only, *filter(None, [options.against])):
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(
                f"no instrument {name!r} for {device.torch_name}; there are {', '.join(names)}{hint}"
            )
    chosen = tuple(each for each in all_here if not options.only or each.name in options.only)
    if options.against is not None and options.against not in {each.name for each in chosen}:
        raise UsageError(f"{options.against!r} is to be measured against, and is not among those that read")
    references = (
        (options.against,) if options.against else default_reference(device.kind, device.default_timer)
    )
    return Setting(
        device.describe(),
        environment(),
        now(),
        device.default_timer,
        calls_for(device.kind),
        chosen,
        options.runs,
        references,
        _versions({each.place for each in chosen}),
    )


def _versions(places: set[Place]) -> dict[str, str]:
    found = {}
    if Place.NVBENCH in places:
        with suppress(metadata.PackageNotFoundError):
            found["cuda-bench"] = metadata.version("cuda-bench")
    if Place.NCU in places and (version := ncu_version()):
        found["ncu"] = version
    return found


def _jobs(instruments: Sequence[Instrument]) -> Iterator[_Job]:
    shared = tuple(each.name for each in instruments if each.place is Place.SHARED)
    if shared:
        yield _Job(shared, Place.SHARED)
    yield from (_Job((each.name,), each.place) for each in instruments if each.place is not Place.SHARED)


def _run(job: _Job, device: Device, setting: Setting, keep: Path | None) -> list[Said]:
    Request(device.torch_name, setting.device.kind, job.instruments, setting.runs).write(job.folder)
    target = [sys.executable, "-c", _CHILD, str(job.folder)]
    if job.place is Place.NCU:
        return _run_ncu(job, target, setting, keep)
    ended = run_child(target, log=job.folder / _LOG, limit_s=_LIMIT_S, env=importing_the_same())
    said = _written(job.folder / READINGS)
    written = job.folder / NVBENCH_JSON
    if job.place is Place.NVBENCH and written.exists():
        _keep(written, keep)
        try:
            said += parse_nvbench(written.read_text(encoding="utf-8"), _names(setting), runs=setting.runs)
        except TimingError as error:
            said.append(Failure("nvbench", str(error)))
    return said + _lost(job, ended, said, keep)


def _run_ncu(job: _Job, target: Sequence[str], setting: Setting, keep: Path | None) -> list[Said]:
    found = find_ncu()
    if not found:
        return [Failure("ncu", found.detail, unavailable=True)]
    log = job.folder / _NCU_CSV
    command = ncu_command(found.detail, target, log=log)
    ended = run_child(command, log=job.folder / _LOG, limit_s=_LIMIT_S, env=importing_the_same())
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if text:
        _keep(log, keep)
    refused = errors_in(text)
    if ended.death and refused:  # such as the permission to read counters, or a driver without them
        return [Failure("ncu", refused, unavailable=True)]
    if ended.death:
        return _lost(job, ended, [], keep)
    try:
        return list(parse_ncu(text, Sections(_names(setting), setting.runs)))
    except TimingError as error:
        return [Failure("ncu", str(error))]


def _lost(job: _Job, ended: Ended, said: Sequence[Said], keep: Path | None) -> list[Said]:
    """Say of every instrument of a process that died why it said no more."""
    if not ended.death:
        return []
    _keep(job.folder / _LOG, keep, name=f"{'-'.join(job.instruments)}.txt")
    last = ended.output.splitlines()[-1:] or ["it wrote nothing"]
    reason = f"{ended.death}; its last line: {last[0]}"
    gone = {each.instrument for each in said if isinstance(each, Failure) and each.call is None}
    return [Failure(name, reason) for name in job.instruments if name not in gone]


def _written(path: Path) -> list[Said]:
    if not path.exists():
        return []
    with open(path, encoding="utf-8") as stream:
        return list(from_lines(stream))


def _names(setting: Setting) -> tuple[str, ...]:
    return tuple(call.name for call in setting.calls)


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kernelmark-audit-") as folder:
        yield Path(folder)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(
            f"cannot make the folder {folder}: {error.strerror}; choose another place"
        ) from error


def _keep(file: Path, folder: Path | None, *, name: str | None = None) -> None:
    if folder is None:
        return
    try:
        shutil.copyfile(file, folder / (name or file.name))
    except OSError as error:
        raise RecordError(f"cannot write into {folder}: {error.strerror}; choose another place") from error
