"""The report of a suite says what the records say: a line for each kernel, means, what loses, what fails and why."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from kernelmark.errors import RecordError, UsageError
from kernelmark.kernelbench.figures import figures_of
from kernelmark.kernelbench.results import SuiteRun
from kernelmark.kernelbench.statuses import Status
from kernelmark.kernelbench.suite_report import (
    is_suite_run,
    render_against,
    render_suite,
    write_suite_reports,
)
from kernelmark.report import Format
from kernelmark.stats import mean_ratio
from tests.unit.kernelbench.made_up import Kernel, ratio

Make = Callable[..., SuiteRun]
FAST, SLOW, SLOWER, EVEN = (
    ratio(1.9, 2.0, 2.1),
    ratio(0.7, 0.8, 0.9),
    ratio(0.4, 0.5, 0.6),
    ratio(0.9, 1.0, 1.1),
)
KERNELS = {
    "level1/1_a.py": Kernel(ratios={"eager": FAST, "inductor": SLOW}),
    "level1/2_b.py": Kernel(ours_ns=2_500_000, ratios={"eager": SLOW}, absent="torch.compile failed: no C++"),
    "level1/3_c.py": Kernel(pipeline="scan", ratios={"eager": SLOWER, "inductor": EVEN}),
    "level1/4_d.py": Kernel(
        "scan", Status.IMPORT_FAILURE, "/tree/level1/4_d.py:3: import: aten.fft is not known", None
    ),
    "level1/5_e.py": Kernel(
        "scan", Status.IMPORT_FAILURE, "/tree/level1/5_e.py:7: import: aten.fft is not known", None
    ),
    "level1/6_f.py": Kernel("scan", Status.TIMEOUT, "it did not end within 300 s", None),
}


@pytest.fixture
def run(make_suite_run: Make) -> SuiteRun:
    return make_suite_run(KERNELS)


def cells(markdown: str, kernel: str) -> list[str]:
    """The cells of the last row that begins with ``kernel``: that of the table of every kernel."""
    rows = [line for line in markdown.splitlines() if line.startswith(f"| {kernel} ")]
    return [cell.strip() for cell in rows[-1].strip("|").split("|")]


def test_each_kernel_has_its_line_with_the_engine_s_own_figures(run: SuiteRun) -> None:
    markdown = render_suite(run, Format.MARKDOWN)
    assert cells(markdown, "level1/1_a") == [
        *("level1/1_a", "matmul", "verified", "normalised rtol=0.0001, two draws", "0.250"),
        *("1.000 µs", "2.000 µs", "800.0 ns"),
        *("2.000 [1.900, 2.100]", "0.800 [0.700, 0.900]"),
    ]
    assert cells(markdown, "level1/6_f") == ["level1/6_f", "scan", "timeout", *[""] * 7]
    assert "inductor: not there for level1/2_b (unavailable: torch.compile failed: no C++)" in markdown


@pytest.mark.spec("L5", "L10")
def test_means_are_over_all_and_per_pipeline_of_the_kernels_that_have_a_ratio(run: SuiteRun) -> None:
    everything, matmul, scan = figures_of(run).groups
    assert everything.means["eager"] == mean_ratio([FAST, SLOW, SLOWER])
    assert matmul.means["inductor"] == mean_ratio([SLOW])
    assert scan.means["eager"] == mean_ratio([SLOWER])
    assert scan.statuses == {Status.VERIFIED: 1, Status.IMPORT_FAILURE: 2, Status.TIMEOUT: 1}
    markdown = render_suite(run, Format.MARKDOWN)
    mean = everything.means["eager"]
    assert f"{mean.value:.3f} [{mean.low:.3f}, {mean.high:.3f}] of 3" in markdown
    assert cells(markdown, "matmul")[:3] == ["matmul", "2", "2 verified"]


def test_what_surely_loses_is_listed_with_the_worst_first(run: SuiteRun) -> None:
    figures = figures_of(run)
    assert [line.kernel for line, _ in figures.losing("eager")] == ["level1/3_c", "level1/2_b"]
    assert [line.kernel for line, _ in figures.losing("inductor")] == ["level1/1_a"]
    markdown = render_suite(run, Format.MARKDOWN)
    section = markdown.split("## What loses to eager")[1].split("##")[0]
    assert "2 of 3 kernels" in section
    assert section.index("level1/3_c") < section.index("level1/2_b")


@pytest.mark.spec("L12")
def test_what_is_not_verified_stands_by_cause_without_paths(run: SuiteRun) -> None:
    markdown = render_suite(run, Format.MARKDOWN)
    section = markdown.split("## What is not verified, by cause")[1].split("##")[0]
    row = "| import failure | 2 | import: aten.fft is not known | level1/4_d, level1/5_e |"
    assert row in section.splitlines()
    assert "/tree" not in section
    assert "it did not end within 300 s" in section


def test_a_kernel_whose_check_vouches_for_nothing_is_not_passed_off_as_verified(make_suite_run: Make) -> None:
    kernels = {
        "level1/1_a.py": Kernel(),
        "level1/33_b.py": Kernel(hollow="the inputs themselves pass its check"),
    }
    markdown = render_suite(make_suite_run(kernels), Format.MARKDOWN)
    assert "1 verified, 1 unverified." in markdown
    section = markdown.split("## What is not verified, by cause")[1].split("\n## ")[0]
    assert "| unverified | 1 | the inputs themselves pass its check | level1/33_b |" in section
    assert cells(markdown, "level1/33_b")[3] == "unverified"


def test_it_says_how_it_was_made(run: SuiteRun) -> None:
    markdown = render_suite(run, Format.MARKDOWN)
    for text in (
        "A CPU (cpu",
        "torch 2.11.0",
        "Every implementation was timed in 3 blocks",
        "2 for PyTorch and the compiled code; 3 kernels use 2",
        "300 s and 8.00 GiB a kernel",
        "2026-11-29T10:00:00+00:00 to 2026-11-29T10:30:00+00:00",
        "kernelmark kernelbench --level 1",
        "nothing of other kernels",
    ):
        assert text in markdown


def test_the_console_shows_the_same_tables(run: SuiteRun) -> None:
    text = render_suite(run, Format.CONSOLE)
    line = next(line for line in text.splitlines()[-15:] if line.startswith("level1/3_c"))
    assert line.split()[:3] == ["level1/3_c", "scan", "verified"]
    assert "0.500 [0.400, 0.600]" in line
    assert "WHAT LOSES TO EAGER" in text


def test_json_and_csv_hold_the_records_own_numbers(run: SuiteRun) -> None:
    document = json.loads(render_suite(run, Format.JSON))
    assert document["schema"] == "kernelmark.suite"
    first = document["kernels"][0]
    assert first["ratios"]["eager"]["low"] == 1.9
    assert first["implementations"]["mlir"]["device_busy_ns"] == 1000.0
    assert document["kernels"][5]["status"] == "timeout"
    assert document["groups"][0]["statuses"] == {"verified": 3, "import failure": 2, "timeout": 1}
    table = list(csv.DictReader(io.StringIO(render_suite(run, Format.CSV))))
    assert len(table) == 6
    assert table[1]["inductor_ns"] == table[1]["inductor_ratio"] == ""
    assert (table[2]["eager_ratio"], table[2]["eager_verdict"]) == ("0.5", "slower")


def test_the_reports_are_kept_beside_the_run(run: SuiteRun) -> None:
    assert is_suite_run(run.folder)
    assert not is_suite_run(run.folder / "kernels")
    paths = write_suite_reports(run.folder)
    assert [path.name for path in paths] == ["suite.md", "suite.json", "suite.csv"]
    assert paths[0].read_text() == render_suite(run, Format.MARKDOWN)


def test_a_run_that_only_checked_has_no_times_and_no_means(make_suite_run: Make) -> None:
    run = make_suite_run({"level1/4_d.py": KERNELS["level1/4_d.py"]}, benchmark=False, ended=None)
    markdown = render_suite(run, Format.MARKDOWN)
    assert "A ratio is" not in markdown
    assert "not ended" in markdown
    assert render_suite(make_suite_run({}, name="empty"), Format.MARKDOWN).startswith("# KernelBench\n")


def test_text_from_a_kernel_opens_no_table(make_suite_run: Make) -> None:
    wild = Kernel("p|q", Status.WRONG, "a | b\n## c `d` <b>", None)
    markdown = render_suite(make_suite_run({"level1/1_a.py": wild}), Format.MARKDOWN)
    assert "\n## c" not in markdown
    assert "a \\| b" in markdown


# --- two runs ------------------------------------------------------------------------------------------


def test_against_another_run_statuses_and_ratios_that_surely_changed_are_flagged(
    run: SuiteRun, make_suite_run: Make
) -> None:
    later = {
        # ours takes another time, and eager the 2000, 2000000 and 500 ns of before
        "level1/1_a.py": Kernel(ours_ns=2000 / 2.3, ratios={"eager": ratio(2.2, 2.3, 2.4)}),
        "level1/2_b.py": Kernel(ours_ns=2e6 / 0.95, ratios={"eager": ratio(0.85, 0.95, 1.05)}),
        "level1/3_c.py": Kernel("scan", ours_ns=500 / 0.25, ratios={"eager": ratio(0.2, 0.25, 0.3)}),
        "level1/4_d.py": Kernel("scan", ratios={"eager": EVEN}),
        "level1/5_e.py": Kernel("scan", Status.CRASH, "signal 11", None),
        "level1/7_g.py": Kernel(),
    }
    other = make_suite_run(later, name="later", jobs=2)
    page, is_worse = render_against(other, run, Format.MARKDOWN)
    assert is_worse
    statuses = page.split("## Statuses")[1].split("\n## ")[0]
    assert "| level1/4_d | import failure | verified | better |  |" in statuses
    assert "| level1/5_e | import failure | crash | worse | signal 11 |" in statuses
    assert "| level1/6_f | timeout | not run | worse |  |" in statuses
    assert "| level1/7_g | not run | verified |  |  |" in statuses
    assert "level1/1_a" not in statuses
    ratios = page.split("## Ratio to eager")[1]
    assert "| level1/1_a | 2.000 [1.900, 2.100] | 2.300 [2.200, 2.400] | x 1.00 | faster |" in ratios
    assert "| level1/2_b | 0.800 [0.700, 0.900] | 0.950 [0.850, 1.050] | x 1.00 |  |" in ratios
    assert "| level1/3_c | 0.500 [0.400, 0.600] | 0.250 [0.200, 0.300] | x 1.00 | slower |" in ratios
    assert "| level1/4_d |  | 1.000 [0.900, 1.100] |  |  |" in ratios
    assert "Of 4 kernels ours is faster beside eager than before in 1 and slower in 1" in ratios
    before = mean_ratio([FAST, SLOW, SLOWER])
    assert f"{before.value:.3f} [{before.low:.3f}, {before.high:.3f}] of 3 before" in ratios
    assert "Jobs: nothing before, 2 kernels at a time" in page


def one(**facts: Any) -> dict[str, Kernel]:
    return {"level1/1_a.py": Kernel(**facts)}


@pytest.mark.parametrize(
    ("before", "after", "is_worse"),
    [
        (one(), one(status=Status.WRONG), True),
        (one(status=Status.WRONG), one(), False),
        (one(), {}, True),
        ({}, one(status=Status.CRASH, ours_ns=None), False),
        (one(ratios={"eager": FAST}), one(ratios={"eager": SLOW}, ours_ns=2000 / 0.8), True),
        (one(ratios={"eager": SLOW}), one(ratios={"eager": FAST}, ours_ns=800 / 2.0), False),
        # eager itself took another time, so the ratio decides nothing
        (one(ratios={"eager": FAST}), one(ratios={"eager": SLOW}), False),
    ],
)
def test_a_worse_status_a_kernel_gone_or_a_slower_ratio_is_worse_and_nothing_else(
    before: dict[str, Kernel], after: dict[str, Kernel], is_worse: bool, make_suite_run: Make
) -> None:
    runs = make_suite_run(after, name="after"), make_suite_run(before, name="before")
    assert render_against(*runs, Format.CONSOLE)[1] is is_worse


def test_a_run_against_itself_has_changed_nowhere(run: SuiteRun) -> None:
    page, is_worse = render_against(run, run, Format.CONSOLE)
    assert not is_worse
    assert "No kernel's status changed." in page
    assert "faster beside eager than before in 0 and slower in 0" in page
    assert "NOT THE SAME" not in page


def test_runs_whose_ratios_mean_different_things_are_refused_and_compared_when_told_to(
    run: SuiteRun, make_suite_run: Make
) -> None:
    other = make_suite_run(KERNELS, name="other", dtype="bf16")
    with pytest.raises(RecordError, match=r"not alike.*dtype is 'bf16' and 'f32'"):
        render_against(run, other, Format.CONSOLE)
    assert "Element type: bf16 before" in render_against(run, other, Format.CONSOLE, ignore=["dtype"])[0]
    with pytest.raises(UsageError, match=r"did you mean 'device\.name'"):
        render_against(run, run, Format.CONSOLE, ignore=["device.nam"])


@pytest.mark.parametrize("form", [Format.JSON, Format.CSV])
def test_two_runs_are_compared_for_people_only(run: SuiteRun, form: Format) -> None:
    with pytest.raises(UsageError, match="--against with --format"):
        render_against(run, run, form)
