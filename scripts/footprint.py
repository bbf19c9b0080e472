"""What kernelmark itself costs: start-up, collection, and what its clock reads of nothing.

    python scripts/footprint.py [--json FILE]

Each line is a median of several runs in processes of their own, with the limit it is held to; the exit code
is 1 if one is missed. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

REPEATS = 5

MANIFEST_HEAD = """\
family: many
ops:
  ManyOp:
    summary: An op with a thousand rows.
    dtypes: {T: [float32]}
    inputs: {x: {dtype: T, shape: [N]}}
    outputs: {y: {dtype: T, shape: [N]}}
    arguments: {}
    roofline: {flops: "N", bytes: "2*N*sizeof(T)", compute: T}
    workloads:
"""

BENCH = """\
import pytest
import kernelmark as bench
from many_ops import ManyOp


@pytest.mark.parametrize("case", bench.cases(ManyOp), ids=lambda case: case.id)
def test_many(case):
    bench.Runner(ManyOp(), case).compare({})
"""


def synthetic_library(folder: Path, rows: int = 1000) -> None:
    """Write an op library whose one op has ``rows`` workload rows."""
    (folder / "pyproject.toml").write_text(
        '[tool.kernelmark]\nname = "many"\nmanifest = "manifest"\nops = "many_ops"\ncases = "many_cases"\n'
        'benchmarks = "."\n'
    )
    (folder / "manifest").mkdir()
    lines = [
        f"      - {{label: row-{i}, source: synthetic, dims: {{N: {i + 1}}}, dtypes: [{{T: float32}}]}}\n"
        for i in range(rows)
    ]
    (folder / "manifest" / "many.yaml").write_text(MANIFEST_HEAD + "".join(lines))
    (folder / "many_ops.py").write_text("class ManyOp:\n    def __call__(self, x):\n        return x\n")
    (folder / "many_cases.py").write_text(
        "from kernelmark import Entry\n\nENTRIES = {'ManyOp': Entry(object)}\n"
    )
    (folder / "bench_many.py").write_text(BENCH)


def seconds(command: list[str], folder: Path) -> float:
    """Time one command from start to exit."""
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - start


def median_of(command: list[str], folder: Path) -> float:
    """Time a command several times, after once untimed."""
    seconds(command, folder)  # the first one reads the files from disk
    return statistics.median(seconds(command, folder) for _ in range(REPEATS))


def host_timer_empty_us() -> float:
    """Ask the host timer what it reads of a call that does nothing, caches cold."""
    from kernelmark import bench_kernel
    from kernelmark.records import Cache
    from kernelmark.timing import TimingOptions

    timing = bench_kernel(lambda: None, device=None, options=TimingOptions(cache=Cache.COLD))
    return (timing.instrument_empty_ns or 0) / 1e3


def main() -> int:
    """Measure, print, compare with the limits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    python = sys.executable
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        synthetic_library(folder)
        questions: list[tuple[str, float, str, Callable[[], float]]] = [
            (
                "kernelmark --help",
                0.3,
                "s",
                lambda: median_of([python, "-m", "kernelmark", "--help"], folder),
            ),
            ("import kernelmark", 0.1, "s", lambda: median_of([python, "-c", "import kernelmark"], folder)),
            (
                "pytest --collect-only, 1,000 cases",
                3.0,
                "s",
                lambda: median_of([python, "-m", "pytest", "--collect-only", "-q", "bench_many.py"], folder),
            ),
            ("host timer, cold empty call", 2.0, "µs", host_timer_empty_us),
        ]
        figures = [(what, ask(), limit, unit) for what, limit, unit, ask in questions]
    for what, value, limit, unit in figures:
        print(f"{what:40} {value:7.3f} {unit:3} limit {limit:g} {'ok' if value <= limit else 'MISSED'}")
    if arguments.json:
        arguments.json.write_text(
            json.dumps(
                [dict(zip(("what", "value", "limit", "unit"), f, strict=True)) for f in figures], indent=1
            )
            + "\n"
        )
    return int(any(value > limit for _, value, limit, _ in figures))


if __name__ == "__main__":
    sys.exit(main())
