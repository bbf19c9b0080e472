"""Nsight Compute: how it is started, what runs under it, and how its CSV is read.

ncu sees kernels and knows no calls, so each run of each call starts with a kernel that no call has: the spin
behind ``torch.cuda._sleep``. The rows between two such markers are the kernels of that many launches. Copies
and memsets are no kernels and are in no reading.
"""

from __future__ import annotations

import csv
import io
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from kernelmark.audit.result import Reading
from kernelmark.errors import TimingError
from kernelmark.probe import Probe, program
from kernelmark.timing import Call

__all__ = ["Sections", "errors_in", "find_ncu", "launch_marked", "ncu_command", "ncu_version", "parse_ncu"]

METRIC = "gpu__time_duration.sum"
LAUNCHES = 5
"""Launches of a call in a run. Each costs ncu tens of milliseconds, and they differ by less than 1 %."""

_MARKER = "spin_kernel"
_WARM_UPS = 3
_SCALE = {"n": 1.0, "u": 1e3, "m": 1e6, "": 1e9}
_UNIT_NS = {f"{prefix}{unit}": ns for prefix, ns in _SCALE.items() for unit in ("s", "second")}
_COLUMNS = ("Kernel Name", "Metric Name", "Metric Unit", "Metric Value")


@dataclass(frozen=True, slots=True)
class Sections:
    """What ran under ncu: for each run each call, ``launches`` times."""

    calls: tuple[str, ...]
    runs: int
    launches: int = LAUNCHES


def find_ncu() -> Probe:
    """Say where ncu is, or how to get it."""
    return program("ncu", fix="install Nsight Compute, and put ncu on the PATH")


def ncu_version() -> str:
    """Ask ncu which version it is; blank where it is not here or does not say."""
    found = find_ncu()
    if not found:
        return ""
    said = subprocess.run(
        [found.detail, "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    version = re.search(r"^Version (\S+)", said.stdout, re.MULTILINE)
    return version[1] if version else ""


def ncu_command(ncu: str, target: Sequence[str], *, log: Path) -> list[str]:
    """Give the command that profiles ``target`` into ``log``: caches flushed, clocks left alone."""
    options = {
        "--metrics": METRIC,
        "--clock-control": "none",
        "--cache-control": "all",
        "--profile-from-start": "off",
        "--print-units": "base",
        "--log-file": str(log),
    }
    return [ncu, "--csv", *(word for option in options.items() for word in option), *target]


def launch_marked(calls: Mapping[str, Call], sections: Sections) -> None:
    """Be what ncu profiles: every call as often as ``sections`` says, a marker before each run of it."""
    import torch

    for call in calls.values():
        for _ in range(_WARM_UPS):
            call.run(*call.args)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for _ in range(sections.runs):
        for name in sections.calls:
            torch.cuda._sleep(1)
            for _ in range(sections.launches):
                calls[name].run(*calls[name].args)
            torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def parse_ncu(text: str, sections: Sections) -> list[Reading]:
    """Read the CSV: each reading is the median over the launches of one run of the times of their kernels.

    Raises:
        TimingError: it is no such CSV, or its rows are not what was launched.
    """
    found = _split(_rows(text))
    wanted = [(run, name) for run in range(sections.runs) for name in sections.calls]
    if len(found) != len(wanted):
        raise TimingError(
            f"ncu shows {len(found)} marked runs rather than {len(wanted)}; records are missing, so no kernel can be"
            " told to belong to a call"
        )
    return [
        Reading("ncu", name, run, _of_one_launch(times, name, sections.launches), sections.launches)
        for (run, name), times in zip(wanted, found, strict=True)
    ]


def errors_in(text: str) -> str:
    """Give what ncu itself says went wrong, in one line; blank if it says nothing."""
    return "; ".join(dict.fromkeys(map(str.strip, re.findall(r"^==ERROR==(.*)", text, re.MULTILINE))))


def _of_one_launch(times: Sequence[float], name: str, launches: int) -> float:
    if not times or len(times) % launches:
        raise TimingError(
            f"ncu shows {len(times)} kernels for {launches} launches of {name}: not the same number each time"
        )
    each = len(times) // launches
    return median(sum(times[start : start + each]) for start in range(0, len(times), each))


def _split(rows: Iterator[tuple[str, float]]) -> list[list[float]]:
    sections: list[list[float]] = []
    for kernel, ns in rows:
        if _MARKER in kernel:
            sections.append([])
        elif not sections:
            raise TimingError(f"ncu shows the kernel {kernel} before the first marker; it belongs to no call")
        else:
            sections[-1].append(ns)
    return sections


def _rows(text: str) -> Iterator[tuple[str, float]]:
    """Yield kernel and time of each row, past what ncu says around the table (``==PROF== ...``)."""
    lines = text.splitlines(keepends=True)
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), None)
    if start is None:
        raise TimingError(f"ncu wrote no table ({errors_in(text) or 'and no error'})")
    table = (line for line in lines[start:] if line.startswith('"'))
    reader = csv.DictReader(io.StringIO("".join(table)))
    missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise TimingError(f"ncu's table has no column {', '.join(map(repr, missing))}")
    for row in reader:
        if row["Metric Name"] == METRIC:
            yield row["Kernel Name"], _ns(row["Metric Value"], row["Metric Unit"])


def _ns(value: str, unit: str) -> float:
    if unit not in _UNIT_NS:
        raise TimingError(f"ncu gives {METRIC} in {unit!r}; known are {', '.join(_UNIT_NS)}")
    try:
        return float(value.replace(",", "")) * _UNIT_NS[unit]
    except ValueError:
        raise TimingError(f"ncu gives {METRIC} as {value!r}, which is no number") from None
