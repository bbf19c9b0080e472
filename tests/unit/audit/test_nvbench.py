"""NVBench's JSON, read with no device: ``tests/data/audit/nvbench.json`` is written as its printer writes it."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelmark.audit.instruments import calls_for
from kernelmark.audit.nvbench import parse_nvbench, run_nvbench
from kernelmark.audit.result import Failure, Reading
from kernelmark.errors import TimingError, UnavailableError

TEXT = (Path(__file__).parents[2] / "data" / "audit" / "nvbench.json").read_text(encoding="utf-8")
NAMES = tuple(call.name for call in calls_for("cuda"))


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    document = json.loads(TEXT)
    change(document)
    return json.dumps(document)


def test_each_reading_is_the_median_of_the_events_times_with_its_samples_and_its_cost() -> None:
    found = parse_nvbench(TEXT, NAMES, runs=2)
    assert all(isinstance(each, Reading) for each in found)
    assert [(each.run, each.call) for each in found if isinstance(each, Reading)] == [
        (run, name) for run in (0, 1) for name in NAMES
    ]
    first, later = found[0], found[5]
    assert isinstance(first, Reading)
    assert isinstance(later, Reading)
    assert first.ns == pytest.approx(3350)
    assert later.ns == pytest.approx(3350 * 1.002)
    assert (first.samples, later.samples) == (18420, 18413)
    assert first.cost_s == pytest.approx(2.0, rel=1e-3)


def test_what_nvbench_wrote_on_an_h200_is_read_whole() -> None:
    recorded = (Path(__file__).parents[2] / "data" / "audit" / "nvbench_h200.json").read_text(
        encoding="utf-8"
    )
    names = tuple(call.name for call in calls_for("cuda"))
    found = [each for each in parse_nvbench(recorded, names, runs=5) if isinstance(each, Reading)]
    assert len(found) == 25
    softmax = [round(each.ns) for each in found if each.call == "softmax 4096² bfloat16"]
    assert softmax == [57056, 56992, 56928, 56896, 56928]


def test_a_row_that_nvbench_skipped_says_why_and_the_others_are_read() -> None:
    def skip(document: dict[str, Any]) -> None:
        document["benchmarks"][3]["states"][0] |= {
            "is_skipped": True,
            "skip_reason": "Deadlock detected",
            "summaries": None,
        }

    found = parse_nvbench(changed(skip), NAMES, runs=2)
    assert found[3] == Failure("nvbench", "skipped: Deadlock detected", NAMES[3])
    assert sum(isinstance(each, Reading) for each in found) == 9


def _without_median(document: dict[str, Any]) -> None:
    state = document["benchmarks"][0]["states"][0]
    state["summaries"] = [each for each in state["summaries"] if not each["tag"].endswith("median")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed(_without_median), "no nv/cold/time/gpu/median for run 0 .* cuda-bench 0.3 or newer"),
        (changed(lambda d: d["benchmarks"].pop()), "0 states for run 1 of softmax"),
        (changed(lambda d: d["benchmarks"][0]["states"].append({})), "2 states for run 0"),
        (changed(lambda d: d.pop("benchmarks")), "no JSON with benchmarks"),
        ("", "no JSON with benchmarks"),
        ("[]", "no JSON with benchmarks"),
    ],
)
def test_what_is_not_all_that_was_run_gives_no_reading(text: str, message: str) -> None:
    with pytest.raises(TimingError, match=message):
        parse_nvbench(text, NAMES, runs=2)


@pytest.mark.skipif(
    importlib.util.find_spec("cuda") is not None and importlib.util.find_spec("cuda.bench") is not None,
    reason="cuda-bench is installed here",
)
def test_without_cuda_bench_the_reason_names_the_module(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"cuda\.bench is not installed"):
        run_nvbench({}, runs=1, device=0, out=tmp_path / "x.json")
