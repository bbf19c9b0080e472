"""The table and the plot of a sweep: rendered from what ``benchmark.json`` says of each size.

Schema history of ``sweep.json``
    1: schema, schema_version, points.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape as escape_xml
from pathlib import Path
from typing import Any

from kernelmark.kernelfile.sweep import Point
from kernelmark.report import write_report
from kernelmark.report.markdown import code, escape
from kernelmark.units import format_ratio, significant

__all__ = ["SWEEP_JSON", "plot", "table", "write_sweep"]

SCHEMA = "kernelmark.kernelfile.sweep"
SCHEMA_VERSION = 1
SWEEP_JSON = "sweep.json"

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
"""Colours that can be told apart by the colour-blind (Okabe and Ito)."""
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 400, 80, 160, 20, 60


def write_sweep(folder: Path, points: Sequence[Point]) -> None:
    """Write ``sweep.md``, ``sweep.json`` and ``sweep.svg`` into ``folder``.

    Raises:
        RecordError: a file cannot be written.
    """
    told = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "points": [
            {"values": dict(each.values), "fingerprint": each.fingerprint, "found": each.found}
            for each in points
        ],
    }
    write_report(folder / SWEEP_JSON, json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    write_report(folder / "sweep.svg", plot(points))
    page = ["# Sweep", table(points), "![median time over sizes](sweep.svg)"]
    write_report(folder / "sweep.md", "\n\n".join(page) + "\n")


def table(points: Sequence[Point]) -> str:
    """Write one line per size: medians of each variant, then the paired ratio to each baseline."""
    variants = _variants(points)
    baselines = list(dict.fromkeys(s["baseline"] for each in points for s in each.found["speedups"]))
    headings = ["size", "outcome", *(f"{code(name)} (ms)" for name in variants)]
    headings += [f"against {code(name)}" for name in baselines]
    lines = []
    for point in points:
        speedups = {each["baseline"]: each for each in point.found["speedups"]}
        cells = [escape(_label(point)), point.found["outcome"]]
        for name in variants:
            median = _median(point, name)
            check = point.found["variants"].get(name, {}).get("check", "")
            cells.append(check if median is None else significant(median))
        for name in baselines:
            one = speedups.get(name)
            cells.append("" if one is None else f"{format_ratio(one['paired'], one['low'], one['high'])}")
        lines.append(cells)
    return "\n".join(f"| {' | '.join(line)} |" for line in (headings, ["---"] * len(headings), *lines))


def plot(points: Sequence[Point]) -> str:
    """Draw the median of each variant over the sizes, times on a logarithmic axis, as SVG."""
    known = [m for p in points for name in _variants(points) if (m := _median(p, name)) is not None and m > 0]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    if known:
        low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
        high = max(high, low + 1)
        parts += _axes(points, low, high)
        for index, name in enumerate(_variants(points)):
            parts += _line(points, name, index, low, high)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _axes(points: Sequence[Point], low: int, high: int) -> list[str]:
    parts = []
    for power in range(low, high + 1):
        y = _y(10.0**power, low, high)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        label = f"{10.0**power:g} ms"
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    # as many labels as there is room for
    step = max(1, math.ceil(len(points) / 8))
    for index in range(0, len(points), step):
        x = _x(index, len(points))
        label = escape_xml(_label(points[index]))
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{label}</text>')
    return parts


def _line(points: Sequence[Point], name: str, index: int, low: int, high: int) -> list[str]:
    colour = _COLOURS[index % len(_COLOURS)]
    places = [
        (_x(i, len(points)), _y(median, low, high))
        for i, point in enumerate(points)
        if (median := _median(point, name)) is not None and median > 0
    ]
    if not places:
        return []
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    x, y = _WIDTH - _RIGHT + 12, _TOP + 16 + 18 * index
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *dots,
        f'<text x="{x}" y="{y}" fill="{colour}">{escape_xml(name)}</text>',
    ]


def _x(index: int, count: int) -> float:
    return _LEFT + 20 + (_WIDTH - _LEFT - _RIGHT - 40) * (index / (count - 1) if count > 1 else 0.5)


def _y(value: float, low: int, high: int) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (high - math.log10(value)) / (high - low)


def _variants(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(name for each in points for name in each.found["variants"]))


def _median(point: Point, name: str) -> float | None:
    found: dict[str, Any] = point.found["variants"].get(name, {})
    return found.get("median_ms")


def _label(point: Point) -> str:
    return " ".join(f"{name}={value}" for name, value in point.values.items())
