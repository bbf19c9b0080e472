"""Carries an audit out: one process after another, each with the instruments that may share it.

The processes do the reading; this one starts them, one at a time, and understands how they end.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from kernelmark.audit.instruments import Instrument, Place, calls_for, default_reference, instruments_for
from kernelmark.audit.ncu import Sections, errors_in, find_ncu, ncu_command, ncu_version, parse_ncu
from kernelmark.audit.nvbench import parse_nvbench
from kernelmark.audit.result import Audit, Failure, Said, Setting, conclude
from kernelmark.audit.work import Request
from kernelmark.device import Device
from kernelmark.errors import RecordError, TimingError, UsageError
from kernelmark.harness.provenance import environment, now
from kernelmark.isolation import Ended, Limits, Worker, errors_beside, importing_the_same, run_command, typed
from kernelmark.text import suggestion

__all__ = ["AuditOptions", "audit"]

_TARGET = "kernelmark.audit.work:work"
_UNDER_NCU = "import sys; from kernelmark.audit.work import launch_for_ncu; launch_for_ncu(*sys.argv[1:])"

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
        with _writing(options.keep):
            options.keep.mkdir(parents=True, exist_ok=True)
    said: list[Said] = []
    apart = [(each,) for each in setting.instruments if each.place is not Place.SHARED]
    shared = tuple(each for each in setting.instruments if each.place is Place.SHARED)
    for group in filter(None, (shared, *apart)):
        told(", ".join(each.name for each in group))
        with tempfile.TemporaryDirectory(prefix="kernelmark-audit-") as folder:
            said += _run(group, Path(folder), device, setting, options.keep)
    return conclude(setting, said)


def _setting(device: Device, options: AuditOptions) -> Setting:
    all_here = instruments_for(device.kind)
    names = [each.name for each in all_here]
    for name in (*options.only, *filter(None, [options.against])):
        if name not in names:
            raise UsageError(
                f"no instrument {name!r} for {device.torch_name}; {suggestion(name, names, there_are='instruments')}"
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


def _run(
    group: Sequence[Instrument], folder: Path, device: Device, setting: Setting, keep: Path | None
) -> list[Said]:
    """Read with the instruments of one process."""
    log, names, place = folder / "output.txt", tuple(each.name for each in group), group[0].place
    if place is Place.NCU:
        return _run_ncu(log, device, setting, keep)
    written = folder / "nvbench.json" if place is Place.NVBENCH else None
    request = Request(device.torch_name, setting.device.kind, names, setting.runs, written)
    with Worker(_TARGET, Limits(_LIMIT_S), environment=importing_the_same()) as worker:
        ended = worker.call(request, log=log)
    said: list[Said] = [typed(Said, each) for each in ended.told]
    if written is not None and written.exists():
        _keep(written, keep)
        try:
            said += parse_nvbench(written.read_text(encoding="utf-8"), setting.names, runs=setting.runs)
        except TimingError as error:
            said.append(Failure("nvbench", str(error)))
    return said + _lost(names, ended, said, log, keep)


def _run_ncu(log: Path, device: Device, setting: Setting, keep: Path | None) -> list[Said]:
    found = find_ncu()
    if not found:
        return [Failure("ncu", found.detail, unavailable=True)]
    table = log.with_name("ncu.csv")
    target = [sys.executable, "-c", _UNDER_NCU, device.torch_name, str(setting.runs)]
    command = ncu_command(found.detail, target, log=table)
    ended = run_command(command, log=log, limits=Limits(_LIMIT_S), environment=importing_the_same())
    text = table.read_text(encoding="utf-8", errors="replace") if table.exists() else ""
    if text:
        _keep(table, keep)
    refused = errors_in(text)
    if ended.death and refused:  # such as the permission to read counters, or a driver without them
        return [Failure("ncu", refused, unavailable=True)]
    if ended.death:
        return _lost(("ncu",), ended, [], log, keep)
    try:
        return list(parse_ncu(text, Sections(setting.names, setting.runs)))
    except TimingError as error:
        return [Failure("ncu", str(error))]


def _lost(
    names: Sequence[str], ended: Ended[None], said: Sequence[Said], log: Path, keep: Path | None
) -> list[Said]:
    """Say of every instrument of a process that came to no good end why it said no more."""
    if not ended.message:
        return []
    _keep(log, keep, name=f"{'-'.join(names)}.txt")
    _keep(errors_beside(log), keep, name=f"{'-'.join(names)}.err")
    reason = ended.message
    if ended.death is not None:
        reason += f"; its last line: {ended.last_words or 'it wrote nothing'}"
    gone = {each.instrument for each in said if isinstance(each, Failure) and each.call is None}
    return [Failure(name, reason) for name in names if name not in gone]


def _keep(file: Path, folder: Path | None, *, name: str | None = None) -> None:
    if folder is not None:
        with _writing(folder):
            shutil.copyfile(file, folder / (name or file.name))


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RecordError(f"cannot write into {folder}: {error.strerror}; choose another place") from error
