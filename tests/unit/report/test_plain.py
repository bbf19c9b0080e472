"""Text from outside is safe to show in one line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.report.plain import grouped, one_line, shortened, visible


@given(st.text())
def test_nothing_invisible_is_left_and_nothing_visible_is_lost(text: str):
    for written in (visible(text), one_line(text)):
        assert written.splitlines() in ([written], [])
        assert not any(
            ord(char) < 32 or 0x7F <= ord(char) < 0xA0 or 0xD800 <= ord(char) < 0xE000 for char in written
        )
        assert not set(written) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u200f\ufffe\uffff")


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_ordinary_text_of_any_script_stays_as_it_is(text: str):
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\u202edlrow", r"\u202edlrow"),
        ("\ud800", r"\ud800"),
        ("µ × 你好 🙂", "µ × 你好 🙂"),
    ],
)
def test_what_cannot_be_seen_is_written_as_an_escape(text: str, written: str):
    assert visible(text) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("off:\n  worst at [1]\n\n  tolerance: 1", "off: worst at [1]; tolerance: 1"),
        ("one\r\ntwo", "one; two"),
        ("\n  \n", ""),
        ("a\t b", "a b"),
        ("bell\x07", r"bell\x07"),
    ],
)
def test_a_message_of_several_lines_becomes_one(text: str, written: str):
    assert one_line(text) == written


def test_a_long_list_ends_with_a_number():
    assert shortened("abc") == "a, b, c"
    assert shortened("abcdefg") == "a, b, c, d, e, and 2 more"
    assert shortened([]) == ""


def test_what_belongs_together_is_listed_once_and_in_its_order():
    pairs = [("b", "2"), ("a", "1"), ("b", "1"), ("b", "2")]
    assert grouped(pairs) == {"b": ["2", "1"], "a": ["1"]}
    assert list(grouped(pairs)) == ["b", "a"]
