from __future__ import annotations

from kernelmark.text.near import listing, suggestion


def test_a_name_in_the_wrong_case_is_recognised() -> None:
    assert suggestion("k", ["B", "K"], there_are="dimensions") == "did you mean 'K'? dimensions: B, K"


def test_a_name_like_none_is_answered_with_the_list_only() -> None:
    assert suggestion("xyz", ["alpha", "beta"], there_are="parameters") == "parameters: alpha, beta"


def test_a_long_list_is_cut_and_says_so() -> None:
    assert listing(range(15)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, and 3 more"


def test_an_empty_list_says_none() -> None:
    assert listing([]) == "none"
