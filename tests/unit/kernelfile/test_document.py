"""``benchmark.md`` and ``benchmark.json``: everything listed is there, and both say the same."""

from __future__ import annotations

import json
import statistics
from itertools import chain
from pathlib import Path

import pytest

HEADER = (
    "solution", "reference", "device", "arch", "dimensions", "correctness", "timing method", "prewarm calls",
    "cache mode", "cache probe", "timing scope", "seed", "tolerances",
)  # fmt: skip


@pytest.mark.spec("K9")
def test_both_files_hold_everything_listed(run, tmp_path: Path) -> None:
    found = run(num_trials=40, values={"N": "32"})
    told = json.loads((tmp_path / "out" / "benchmark.json").read_text())
    page = (tmp_path / "out" / "benchmark.md").read_text()
    for name in HEADER:
        assert name in told["header"]
        assert f"| {name} |" in page
    assert told["header"]["dimensions"] == {"N": "32"}
    assert told["header"]["cache probe"].startswith("reading ")
    for label in ("mean (ms)", "median (ms)", "p20 (ms)", "p80 (ms)", "min (ms)", "max (ms)", "samples"):
        assert f"| {label} |" in page
    assert "standard deviation (ms)" in page
    assert "by mean | by median | paired, with its 95 % interval" in page
    assert f"in {told['run']}." in page
    assert set(told["variants"]) == {"solution", "pytorch-eager"}
    assert found.outcome == told["outcome"] == "measured"


@pytest.mark.spec("K9")
def test_the_numbers_are_those_of_the_samples(run, tmp_path: Path) -> None:
    ours, eager = run(num_trials=40).rows
    told = json.loads((tmp_path / "out" / "benchmark.json").read_text())
    samples = {
        row.implementation: sorted(chain.from_iterable(p.device_busy_ns for p in row.timing.passes))
        for row in (ours, eager)
    }
    mine, theirs = told["variants"]["solution"], told["variants"]["pytorch-eager"]
    assert mine["samples"] == len(samples["solution"]) == 40
    assert mine["median_ms"] == pytest.approx(statistics.median(samples["solution"]) / 1e6)
    assert (mine["p20_ms"], mine["p80_ms"]) == (samples["solution"][8] / 1e6, samples["solution"][31] / 1e6)
    (speedup,) = told["speedups"]
    assert speedup["by_mean"] == pytest.approx(theirs["mean_ms"] / mine["mean_ms"])
    assert speedup["by_median"] == pytest.approx(theirs["median_ms"] / mine["median_ms"])
    assert (speedup["paired"], speedup["low"]) == (eager.ratio.value, eager.ratio.low)


def test_text_of_the_user_s_cannot_open_a_table(run, tmp_path: Path) -> None:
    run(values={"N": "8"})
    page = (tmp_path / "out" / "benchmark.md").read_text()
    widths = {
        line.count(" | ") for line in page.splitlines() if line.startswith(("| solution |", "| dimensions |"))
    }
    assert widths == {1}
