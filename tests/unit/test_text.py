"""Errors and counts in few words."""

from __future__ import annotations

import pytest

from kernelmark.errors import UsageError
from kernelmark.text import counted, first_line, in_short, listing, message_of, suggestion


def test_a_name_in_the_wrong_case_is_recognised() -> None:
    assert suggestion("k", ["B", "K"], there_are="dimensions") == "did you mean 'K'? dimensions: B, K"


def test_a_name_like_none_is_answered_with_the_list_only() -> None:
    assert suggestion("xyz", ["alpha", "beta"], there_are="parameters") == "parameters: alpha, beta"


def test_a_long_list_is_cut_and_says_so() -> None:
    assert listing(range(15)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, and 3 more"


def test_an_empty_list_says_none() -> None:
    assert listing([]) == "none"


@pytest.mark.parametrize(("number", "text"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (None, "")])
def test_one_thing_has_no_plural(number: int | None, text: str) -> None:
    assert counted(number, "row") == text


@pytest.mark.parametrize(
    "text", ["out of memory", "\n out of memory\nTried 4 GiB", "out of memory\r\nand more"]
)
def test_the_first_line_is_what_stands_before_the_first_line_end(text: str) -> None:
    assert first_line(RuntimeError(text)) == first_line(text) == "out of memory"


def test_an_error_without_a_message_is_its_class() -> None:
    assert in_short(MemoryError()) == "MemoryError"
    assert in_short(MemoryError("4 GiB\nin one piece")) == "MemoryError: 4 GiB"


def test_only_the_errors_of_others_begin_with_their_class() -> None:
    assert message_of(UsageError("give a size\nsuch as 4")) == "give a size\nsuch as 4"
    assert message_of(ValueError("give\na size")) == "ValueError: give\na size"
