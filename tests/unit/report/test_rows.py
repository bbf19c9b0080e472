"""Rows as they are read: grouped, as single lines, with their parameters, as properties of a JUnit test case."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.records import Check, Ratio, Row, StoredRun
from kernelmark.report.rows import (
    by_op,
    check_lines,
    junit_properties,
    overview_lines,
    param_texts,
    progress_line,
    time_scale,
)


@given(places=st.lists(st.tuples(st.sampled_from([None, "A", "B"]), st.sampled_from(["x", "y"])), max_size=9))
def test_every_row_is_in_exactly_one_group_and_in_its_order(
    make_row: Callable[..., Row], places: list[tuple[str | None, str]]
):
    rows = [make_row(str(i), op=op, case=case) for i, (op, case) in enumerate(places)]
    ops = by_op(rows)
    assert list(ops) == list(dict.fromkeys(op for op, _ in places))
    grouped = [row for cases in ops.values() for of_case in cases.values() for row in of_case]
    assert sorted(row.implementation for row in grouped) == sorted(row.implementation for row in rows)
    for op, cases in ops.items():
        for case, of_case in cases.items():
            assert {(row.op, row.case) for row in of_case} == {(op, case)}
            order = [int(row.implementation) for row in of_case]
            assert order == sorted(order)


def test_the_times_of_a_case_share_a_scale_chosen_by_its_shortest_time(
    make_row: Callable[..., Row], make_timing: Callable
):
    rows = [make_row(timing=make_timing(812_300)), make_row(timing=make_timing(1_204_000)), make_row()]
    assert time_scale(rows).format(1_204_000) == "1204.0 µs"


def test_text_stays_text_and_everything_else_is_json():
    assert param_texts(
        {"x": "float16[8]", "dim": -1, "on": True, "no": None, "shape": [1, 2], "m": {"µ": 1.5}}
    ) == {
        "x": "float16[8]",
        "dim": "-1",
        "on": "true",
        "no": "null",
        "shape": "[1, 2]",
        "m": '{"µ": 1.5}',
    }


def test_what_cannot_be_seen_is_escaped():
    assert param_texts({"a\n": "b\x1b"}) == {r"a\n": r"b\x1b"}


@pytest.mark.spec("T27")
def test_each_implementations_error_is_told_against_its_tolerance(stored: StoredRun):
    lines = check_lines(row.model_copy(update={"timing": None}) for row in stored.rows)
    start = "bmm/attention-scores/float16"
    assert lines[0] == (
        f"{start}  tileops  verified"
        "  out: largest error 0.000210; at worst 0.210 times the tolerance (atol=0.001 rtol=0.001)"
    )
    assert f"{start}  sglang  partial  partial: 1 of 2 outputs was not checked: workspace" in lines
    assert any(
        line.startswith(f"{start}  vendor  noncomparable  out: largest error 0.00420") for line in lines
    )
    assert any(
        "torch-cublas  failed  out: largest error 0.0915; at worst 91.5 times" in line for line in lines
    )
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


@pytest.mark.spec("T2")
def test_a_property_carries_the_implementation_the_quantity_and_the_raw_value(stored: StoredRun):
    properties = dict(junit_properties(stored.rows[1]))
    assert properties["vllm.case"] == "bmm/attention-scores/float16"
    assert properties["vllm.check"] == "verified"
    assert properties["vllm.device_busy_ns"] == "21916.5"
    assert properties["vllm.verdict"] == "faster"
    assert properties["vllm.n_kernels_varied"] == "false"


def test_what_a_row_does_not_say_is_no_property(stored: StoredRun):
    unavailable = dict(junit_properties(stored.rows[4]))
    assert unavailable["flashinfer.note"].startswith("flashinfer is not installed")
    assert not any(name.startswith(("flashinfer.device_busy", "flashinfer.ratio")) for name in unavailable)
    assert all(unavailable.values())


def test_the_rows_of_a_test_do_not_hide_each_other(stored: StoredRun):
    names = [name for row in stored.rows[:5] for name, _ in junit_properties(row)]
    assert len(set(names)) == len(names)


@given(text=st.text(min_size=1))
def test_any_text_makes_valid_xml(make_row: Callable[..., Row], text: str):
    root = ElementTree.Element("properties")
    properties = junit_properties(make_row(text, check=Check.UNVERIFIED, note=text, notes=(text,)))
    for name, value in properties:
        ElementTree.SubElement(root, "property", name=name, value=value)
    back = ElementTree.fromstring(ElementTree.tostring(root, encoding="utf-8"))
    assert [(each.get("name"), each.get("value")) for each in back] == properties


def test_pytest_writes_them_where_junit_readers_look(pytester: pytest.Pytester, stored: StoredRun):
    pytester.makepyfile(
        f"""
        from kernelmark.records import read_run
        from kernelmark.report import junit_properties

        def test_rows(record_property):
            for row in read_run({str(stored.path)!r}).rows[:2]:
                for name, value in junit_properties(row):
                    record_property(name, value)
        """
    )
    assert pytester.runpytest_subprocess("--junit-xml=out.xml").ret == 0
    found = ElementTree.parse(pytester.path / "out.xml").iter("property")
    values = {each.get("name"): each.get("value") for each in found}
    assert values["vllm.ratio"] == repr(stored.rows[1].ratio.value)  # type: ignore[union-attr]
    assert values["tileops.check"] == "verified"


# --- many cases at a glance --------------------------------------------------------------------------------


def test_each_baseline_has_a_line_and_a_single_case_needs_none(
    make_row: Callable[..., Row], make_timing: Callable
):
    def row(case: str, value: float, verdict: str) -> Row:
        ratio = Ratio(value=value, low=value * 0.9, high=value * 1.1, blocks=10, verdict=verdict)
        return make_row(case=case, timing=make_timing(), ratio=ratio)

    faster, slower = row("a", 2.0, "faster"), row("b", 0.5, "slower")
    assert overview_lines([faster]) == []
    (line,) = overview_lines([faster, slower])
    assert line.startswith(
        "beside vllm, of 2 cases: ours 1 faster, 1 slower, 0 undecided; geometric mean of 2 ratios 1.000 ["
    )
