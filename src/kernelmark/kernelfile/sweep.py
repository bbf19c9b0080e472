"""A benchmark over several sizes, in one worker; a size that fails is one row, and the next has a new worker.

What was measured is kept, so that a sweep that is started again goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelmark.errors import KernelmarkError, TimingError, UsageError, VerificationError
from kernelmark.kernelfile.isolation import Processes
from kernelmark.kernelfile.request import Request
from kernelmark.kernelfile.run import benchmark

__all__ = ["Point", "parse_sweep", "run_sweep"]

MOST_POINTS = 1000
"""More is a range written wrong."""

_RANGE = re.compile(r"(\d+)(?:\^(\d+))?\.\.(\d+)(?:\^(\d+))?")


@dataclass(frozen=True, slots=True)
class Point:
    """One size and what was found there."""

    values: Mapping[str, str]
    fingerprint: str
    """Of the files and of what was asked: a point is kept only while it is the same."""
    found: Mapping[str, Any]
    """``benchmark.json`` of that size."""
    kept: bool = False
    """Whether it was measured by an earlier sweep."""


def parse_sweep(texts: Sequence[str]) -> list[dict[str, str]]:
    """Read ``M=1024,2048`` and ranges such as ``K=2^8..2^13`` or ``B=1..8``; several make all combinations.

    Raises:
        UsageError: it is written otherwise, names something twice, or is empty or endless.
    """
    axes: dict[str, list[str]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--sweep {text}: write NAME=VALUE,VALUE or NAME=2^8..2^13")
        if name in axes:
            raise UsageError(f"--sweep {text}: {name} is swept twice")
        axes[name] = [each for part in values.split(",") for each in _expand(part.strip(), text)]
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > MOST_POINTS:
        raise UsageError(f"--sweep: {count} sizes; {MOST_POINTS} are the most")
    return [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]


def run_sweep(
    request: Request,
    sizes: Sequence[Mapping[str, str]],
    *,
    command: tuple[str, ...] = (),
    told: Callable[[Point], None] = lambda point: None,
) -> list[Point]:
    """Benchmark every size, and write ``sweep.md``, ``sweep.json`` and ``sweep.svg`` after each.

    Args:
        request: What all sizes share.
        sizes: The values that differ.
        command: The command line, for the records.
        told: Called with each point when it is known.

    Raises:
        UsageError: a size cannot be run as asked; the sizes before it are kept.
        UnavailableError: this machine lacks something.
        KernelmarkError: at least one size failed, crashed or was not timed; all were tried.
    """
    from kernelmark.kernelfile.sweep_report import SWEEP_JSON, write_sweep

    twice = sorted({name for size in sizes for name in size} & set(request.values))
    if twice:
        raise UsageError(f"{', '.join(twice)}: given as a value and as a --sweep; leave one")
    kept = _kept(request.output_dir / SWEEP_JSON)
    points: list[Point] = []
    first_error: KernelmarkError | None = None
    with Processes(keep_worker=True) as processes:
        for size in sizes:
            each = _at(request, size)
            fingerprint = _fingerprint(each)
            if fingerprint in kept:
                point = Point(size, fingerprint, kept[fingerprint], kept=True)
            else:
                first_error = _worse(first_error, _run(each, command, processes))
                page = each.output_dir / "benchmark.json"
                point = Point(size, fingerprint, json.loads(page.read_text(encoding="utf-8")))
            points.append(point)
            write_sweep(request.output_dir, points)
            told(point)
    if first_error is not None:
        raise first_error
    return points


def _at(request: Request, size: Mapping[str, str]) -> Request:
    label = ",".join(f"{name}={value}" for name, value in size.items())
    return replace(
        request, values={**request.values, **size}, output_dir=request.output_dir / "sweep" / label
    )


def _run(request: Request, command: tuple[str, ...], processes: Processes) -> KernelmarkError | None:
    try:
        benchmark(request, command=command, processes=processes)
    except (VerificationError, TimingError) as error:
        return error
    return None


def _worse(first: KernelmarkError | None, second: KernelmarkError | None) -> KernelmarkError | None:
    """Keep the first error, except that a crash, which is the subclass, says more than a wrong answer."""
    if first is None or second is None:
        return first or second
    return second if issubclass(type(second), type(first)) and type(second) is not type(first) else first


def _expand(part: str, text: str) -> Iterator[str]:
    found = _RANGE.fullmatch(part)
    if found is None:
        if not part or ".." in part:
            raise UsageError(f"--sweep {text}: {part!r} is no value and no range such as 2^8..2^13 or 1..8")
        yield part
        return
    low, low_power, high, high_power = (None if group is None else int(group) for group in found.groups())
    if (low_power is None) != (high_power is None) or (low_power is not None and low != high):
        raise UsageError(f"--sweep {text}: the ends of a range are two numbers, or two powers of one number")
    if low_power is None or high_power is None:
        assert low is not None  # both groups are always there
        assert high is not None
        start, stop, value = low, high, str
    else:
        start, stop, value = low_power, high_power, lambda power: str(low**power)  # type: ignore[operator]
    if not 0 <= stop - start < MOST_POINTS:
        raise UsageError(f"--sweep {text}: {part} is empty or has more than {MOST_POINTS} values")
    yield from (value(each) for each in range(start, stop + 1))


def _fingerprint(request: Request) -> str:
    told = json.loads(request.to_json())
    for name in ("output_dir", "timeout_s"):
        del told[name]
    parts = [json.dumps(told, sort_keys=True).encode()]
    parts += [path.read_bytes() for path in (request.solution, request.ref)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:24]


def _kept(path: Path) -> dict[str, Mapping[str, Any]]:
    """Give the points of an earlier sweep that went well; a file that cannot be read keeps nothing."""
    try:
        points = json.loads(path.read_text(encoding="utf-8"))["points"]
        return {
            each["fingerprint"]: each["found"]
            for each in points
            if each["found"]["outcome"] in ("measured", "verified")
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}
