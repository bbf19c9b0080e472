"""A row as properties of a JUnit test case."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.records import Check, Row, StoredRun
from kernelmark.report.junit import junit_properties


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
