"""A benchmark over several sizes, in one worker; a size that fails is one row, and the next has a new worker.

What was measured is kept, so that a sweep that is started again goes on where it stopped. The table and the plot
show what ``benchmark.json`` says of each size.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape as escape_xml
from pathlib import Path
from typing import Any

from kernelmark.errors import KernelmarkError, TimingError, UsageError, VerificationError
from kernelmark.kernelfile.judging import Ending
from kernelmark.kernelfile.request import Request
from kernelmark.kernelfile.run import carry_out, processes
from kernelmark.records import FORMAT_VERSION
from kernelmark.report import write_report
from kernelmark.report.columns import Align
from kernelmark.report.pages import Page, Section, Table, page_markdown
from kernelmark.units import format_ratio, significant

__all__ = ["Point", "parse_sweep", "run_sweep"]

_JSON = "sweep.json"

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

    @property
    def label(self) -> str:
        """The size in words."""
        return " ".join(f"{name}={value}" for name, value in self.values.items())

    def median_ms(self, variant: str) -> float | None:
        """Give the median time of a variant; ``None`` where it has none."""
        return self.found["variants"].get(variant, {}).get("median_ms")


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
    if (count := math.prod(map(len, axes.values()))) > MOST_POINTS:
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
    if twice := sorted({name for size in sizes for name in size} & set(request.values)):
        raise UsageError(f"{', '.join(twice)}: given as a value and as a --sweep; leave one")
    kept = _kept(request.output_dir / _JSON)
    points: list[Point] = []
    error: KernelmarkError | None = None
    with processes(request, keep_worker=True) as running:
        for size in sizes:
            label = ",".join(f"{name}={value}" for name, value in size.items())
            each = replace(
                request,
                values={**request.values, **size},
                output_dir=request.output_dir / "sweep" / label,
            )
            fingerprint = _fingerprint(each)
            found = kept.get(fingerprint)
            if found is None:
                run = carry_out(each, command=command, running=running)
                if run.error is not None and not isinstance(run.error, VerificationError | TimingError):
                    raise run.error
                error, found = _worse(error, run.error), run.told
            points.append(Point(size, fingerprint, found, kept=fingerprint in kept))
            _write(request.output_dir, points)
            told(points[-1])
    if error is not None:
        raise error
    return points


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
    low, low_power, high, high_power = found.groups()
    if (low_power is None) != (high_power is None) or (low_power is not None and int(low) != int(high)):
        raise UsageError(f"--sweep {text}: the ends of a range are two numbers, or two powers of one number")
    start, stop = int(low_power or low), int(high_power or high)
    if not 0 <= stop - start < MOST_POINTS:
        raise UsageError(f"--sweep {text}: {part} is empty or has more than {MOST_POINTS} values")
    yield from (str(each if low_power is None else int(low) ** each) for each in range(start, stop + 1))


def _fingerprint(request: Request) -> str:
    told = {name: each for name, each in asdict(request).items() if name not in ("output_dir", "timeout_s")}
    parts = [json.dumps(told, sort_keys=True, default=str).encode()]
    parts += [path.read_bytes() for path in (request.solution, request.ref)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:24]


def _kept(path: Path) -> dict[str, Mapping[str, Any]]:
    """Give the points of an earlier sweep that went well; a file of another version, or none, keeps nothing."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        points = told["points"] if told["schema_version"] == FORMAT_VERSION else ()
        return {
            each["fingerprint"]: each["found"] for each in points if Ending(each["found"]["outcome"]).passed
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}


# --- the table and the plot ----------------------------------------------------------------------------

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
"""Colours that can be told apart by the colour-blind (Okabe and Ito)."""
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 400, 80, 160, 20, 60


def _write(folder: Path, points: Sequence[Point]) -> None:
    """Write ``sweep.md``, ``sweep.json`` and ``sweep.svg`` into ``folder``."""
    told = {
        "schema": "kernelmark.kernelfile.sweep",
        "schema_version": FORMAT_VERSION,
        "points": [
            {"values": dict(each.values), "fingerprint": each.fingerprint, "found": each.found}
            for each in points
        ],
    }
    variants = list(dict.fromkeys(name for each in points for name in each.found["variants"]))
    write_report(folder / _JSON, json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    write_report(folder / "sweep.svg", _plot(points, variants))
    page = page_markdown(Page("Sweep", (Section("", (_table(points, variants),)),)))
    write_report(folder / "sweep.md", f"{page}\n![median time over sizes](sweep.svg)\n")


def _table(points: Sequence[Point], variants: Sequence[str]) -> Table:
    """Lay out one line per size: medians of each variant, then the paired ratio to each baseline."""
    baselines = list(dict.fromkeys(s["baseline"] for each in points for s in each.found["speedups"]))
    medians = [f"{name}: median (ms)" for name in variants]
    headings = ("size", "outcome", *medians, *(f"times as fast as {name}" for name in baselines))
    lines = []
    for point in points:
        ratios = {
            each["baseline"]: format_ratio(each["paired"], each["low"], each["high"])
            for each in point.found["speedups"]
        }
        line = [point.label, point.found["outcome"]]
        for name in variants:
            median = point.median_ms(name)
            check = point.found["variants"].get(name, {}).get("check", "")
            line.append(check if median is None else significant(median))
        lines.append((*line, *(ratios.get(name, "") for name in baselines)))
    return Table(headings, tuple(lines), (Align.LEFT, Align.LEFT, *(Align.RIGHT,) * (len(headings) - 2)))


def _plot(points: Sequence[Point], variants: Sequence[str]) -> str:
    """Draw the median of each variant over the sizes, times on a logarithmic axis, as SVG."""
    lines = {
        name: [(i, m) for i, point in enumerate(points) if (m := point.median_ms(name)) is not None and m > 0]
        for name in variants
    }
    known = [median for line in lines.values() for _, median in line]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    low = math.floor(math.log10(min(known, default=1)))
    high = max(math.ceil(math.log10(max(known, default=1))), low + 1)

    def across(index: int) -> float:
        share = index / (len(points) - 1) if len(points) > 1 else 0.5
        return _LEFT + 20 + (_WIDTH - _LEFT - _RIGHT - 40) * share

    def down(value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (high - math.log10(value)) / (high - low)

    for power in range(low, high + 1) if known else ():
        y = down(10.0**power)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        label = f"{10.0**power:g} ms"
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    # as many labels as there is room for
    for index in range(0, len(points), max(1, math.ceil(len(points) / 8))) if known else ():
        x, label = across(index), escape_xml(points[index].label)
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{label}</text>')
    for row, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[row % len(_COLOURS)]
        places = [(across(index), down(median)) for index, median in line]
        if places:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
            x, y = _WIDTH - _RIGHT + 12, _TOP + 16 + 18 * row
            parts.append(f'<text x="{x}" y="{y}" fill="{colour}">{escape_xml(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
