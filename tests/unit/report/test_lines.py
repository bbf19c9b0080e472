"""Rows as single lines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmark.records import Row, StoredRun
from kernelmark.report.lines import check_lines, progress_line


@pytest.mark.spec("T27")
def test_each_implementations_error_is_told_against_its_tolerance(stored: StoredRun):
    lines = check_lines(row.model_copy(update={"timing": None}) for row in stored.rows)
    start = "bmm/attention-scores/float16"
    assert lines[0] == (
        f"{start}  tileops  verified"
        "  out: worst error 0.000210, 0.210 times the tolerance (atol=0.001 rtol=0.001)"
    )
    assert f"{start}  sglang  partial  partial: 1 of 2 outputs was not checked: workspace" in lines
    assert any(line.startswith(f"{start}  vendor  noncomparable  out: worst error 0.00420") for line in lines)
    assert any("torch-cublas  failed  out: worst error 0.0915, 91.5 times" in line for line in lines)
    assert sum("91.5 times" in line for line in lines) == 1
    assert any("flashinfer  unavailable  unavailable: flashinfer is not installed" in line for line in lines)
    assert any("torch  unverified  unverified: the reference ran out of memory" in line for line in lines)


def test_every_row_has_a_line_even_with_nothing_to_compare(make_row: Callable[..., Row]):
    assert check_lines([make_row()]) == ["a case  vllm  verified  nothing to compare"]


def test_progress_tells_the_newest_rows_in_one_line(stored: StoredRun):
    assert progress_line(stored.rows[:5]) == (
        "bmm/attention-scores/float16: tileops 18.38 µs, vllm 21.92 µs (1.192 [1.188, 1.197] ours faster),"
        " sglang partial 18.40 µs (1.002 [0.997, 1.007] undecided), vendor noncomparable 17.02 µs,"
        " flashinfer unavailable"
    )


def test_progress_of_several_cases_is_still_one_line(make_row: Callable[..., Row]):
    assert (
        progress_line([make_row("a\nb"), make_row(case="c\nd")])
        == r"a case: a\nb verified | c\nd: vllm verified"
    )
