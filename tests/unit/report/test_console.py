"""What a terminal shows."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from kernelmark.records import Cache, Check, Ratio, Role, Row, StoredRun
from kernelmark.report.console import console_report, console_table, console_text, plain_text


def line_of(text: str, name: str) -> str:
    (found,) = [line for line in text.splitlines() if re.match(rf"\s+{name}  ", line)]
    return found


def in_colour(rows: tuple[Row, ...], width: int = 200) -> str:
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, width=width, color_system="standard").print(
        console_table(rows, width)
    )
    return stream.getvalue()


def test_rows_stand_under_their_op_and_case_with_one_heading_line_per_op(stored: StoredRun):
    text = console_text(stored.rows)
    order = [
        "BmmFwdOp",
        "bmm/attention-scores/float16",
        "bmm/attention-scores/bfloat16",
        "SoftmaxFwdOp",
        "softmax/",
    ]
    places = [re.search(rf"^{re.escape(each)}", text, re.MULTILINE).start() for each in order]  # type: ignore[union-attr]
    assert places == sorted(places)
    assert text.count("ratio [low, high]") == 1
    assert text.count("implementation") == 2


def test_cold_and_warm_rows_in_one_table_are_told_once(
    make_row: Callable[..., Row], make_timing: Callable, make_run: Callable
):
    rows = [make_row(timing=make_timing(cache=cache)) for cache in Cache]
    told = "look here caches: of these times 1 with cold caches and 1 with warm caches were read"
    assert console_text(rows).splitlines()[-1].startswith(told)
    assert plain_text(console_report(make_run(*rows))).count(told) == 1
    assert "look here" not in console_text(rows[:1])


@pytest.mark.spec("T36")
def test_there_is_a_line_for_every_row_and_the_parameters_of_its_case(stored: StoredRun):
    text = console_text(stored.rows)
    for row in stored.rows:
        assert re.search(rf"^  {row.implementation} .*{row.check}", text, re.MULTILINE)
    assert "a=float16[8, 512, 512], b=float16[8, 512, 512], transpose=false, bias=null" in text


def test_a_row_shows_its_times_in_one_unit_and_its_ratio_with_interval_and_verdict(stored: StoredRun):
    line = line_of(console_text(stored.rows[:5]), "vllm")
    assert " ".join(line.split()) == (
        "vllm verified 0.400 21.92 µs 24.01 µs 2.08 µs 1 30 21.84 µs 21.97 µs 0 ns 0.0 % 97.98 0.5741 12.0 %"
        " 1.192 [1.188, 1.197] ours faster"
    )


@pytest.mark.spec("T20", "T23", "T36")
def test_a_timed_row_that_nothing_vouches_for_is_marked_without_colour_and_has_no_ratio(stored: StoredRun):
    text = console_text(stored.rows)
    vendor = line_of(text, "vendor")
    assert "! noncomparable" in vendor
    assert "17.02 µs" in vendor
    assert "[" not in vendor
    assert "vendor: noncomparable: vendor uses different rounding semantics" in text
    assert "tileops, torch: unverified: the reference ran out of memory: CUDA out of memory" in text


@pytest.mark.spec("T14")
def test_an_unavailable_row_shows_its_reason_and_a_failed_one_its_worst_error(stored: StoredRun):
    text = console_text(stored.rows)
    assert "– unavailable" in line_of(text, "flashinfer")
    assert "flashinfer: unavailable: flashinfer is not installed (pip install flashinfer-python)" in text
    assert "91.5" in line_of(text, "torch-cublas")
    assert "worst at [3, 17, 201]: expected 1.482, got 0.0" in text


def test_columns_that_are_empty_for_an_op_are_left_out_of_its_table(stored: StoredRun):
    softmax = console_text([row for row in stored.rows if row.op == "SoftmaxFwdOp"])
    assert "ratio" not in softmax
    assert "tolerance" not in softmax
    checks = console_text([row for row in stored.rows if row.case.endswith("bfloat16")])
    assert "device" not in checks


def test_columns_line_up_across_the_cases_of_an_op(stored: StoredRun):
    text = console_text([row for row in stored.rows if row.op == "BmmFwdOp"])
    lines = [line for line in text.splitlines() if re.match(r"  \S+ .* verified ", line)]
    starts = {line.index(" verified ") for line in lines}
    assert len(lines) == 3
    assert len(starts) == 1


@pytest.mark.parametrize("width", [57, 60, 70, 80, 100, 120, 150])
def test_a_narrow_terminal_loses_columns_but_never_what_matters(stored: StoredRun, width: int):
    text = console_text(stored.rows, width=width)
    assert max(map(cell_len, text.splitlines())) <= width
    words = " ".join(text.split())
    for must in ("21.92 µs", "1.192 [1.188, 1.197]", "ours faster", "noncomparable", "unverified", "failed"):
        assert must in words


def test_the_least_important_column_goes_first(stored: StoredRun):
    wide = console_text(stored.rows[:5])
    full = max(cell_len(line) for line in wide.splitlines() if "ours faster" in line)
    assert "drift" in console_text(stored.rows[:5], width=full)
    without = console_text(stored.rows[:5], width=full - 1)
    assert "drift" not in without
    assert "p90" in without


@given(
    name=st.text(min_size=1, max_size=60),
    case=st.text(max_size=60),
    note=st.text(min_size=1, max_size=200),
    width=st.integers(57, 200),
)
def test_no_text_from_outside_breaks_the_table(
    make_row: Callable[..., Row], make_timing: Callable, name: str, case: str, note: str, width: int
):
    ratio = Ratio(value=1.2, low=1.1, high=1.3, blocks=9, verdict="faster")
    rows = [
        make_row(name, case=case, op=name, note=note, params={name: note}, timing=make_timing(), ratio=ratio),
        make_row("other", case=case, op=name, check=Check.UNVERIFIED, note=note, timing=make_timing()),
    ]
    text = console_text(rows, width=width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert not any(ord(char) < 32 and char != "\n" for char in text)
    assert "! unverified" in text
    assert "1.200 [1.100, 1.300]" in text


def test_markup_in_a_name_is_only_text(make_row: Callable[..., Row]):
    text = console_text([make_row("[red]torch[/red]", case="[link=x]", notes=(":smile: [bold]",))])
    assert "[red]torch[/red]" in text
    assert "[link=x]" in text
    assert ":smile: [bold]" in text


def test_colour_only_repeats_what_the_words_say(stored: StoredRun):
    coloured = in_colour(stored.rows)
    assert "\x1b[" in coloured
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert "\n".join(line.rstrip() for line in bare.splitlines()) == console_text(stored.rows, width=200)


def test_our_own_row_stands_out(make_row: Callable[..., Row]):
    assert "\x1b[1mours" in in_colour((make_row("ours", role=Role.OURS), make_row("theirs")))
    assert "\x1b[1mtheirs" not in in_colour((make_row("ours", role=Role.OURS), make_row("theirs")))


def test_rows_without_an_op_need_no_op_heading(make_row: Callable[..., Row]):
    assert console_text([make_row(op=None)]).splitlines()[0] == "a case"


def test_no_rows_are_said_to_be_none(make_run: Callable[..., StoredRun]):
    assert console_text([]) == "no rows"
    assert "no rows" in plain_text(console_report(make_run()))


def test_a_whole_run_shows_how_it_was_made_what_it_found_and_what_to_look_at(stored: StoredRun):
    text = plain_text(console_report(stored))
    assert re.search(r"^Device +NVIDIA H200", text)
    assert "9 rows: 3 verified, 1 partial, 2 unverified, 1 noncomparable, 1 failed, 1 unavailable" in text
    assert "! timed, but nothing vouches for its answers: it has no ratio" in text
    assert "ratio: baseline time over our time, so above 1 ours is faster" in text
    assert "look here drift: " in text


def test_marks_and_ratios_are_explained_only_where_there_are_any(
    make_row: Callable[..., Row], make_run: Callable[..., StoredRun]
):
    text = plain_text(console_report(make_run(make_row(), make_row("gone", check=Check.UNAVAILABLE))))
    assert "timed, but" not in text
    assert "ratio:" not in text
    assert "look here" not in text
