"""What ranks tell each other, over nothing but the largest of one number."""

from __future__ import annotations

import math
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import DistributedError
from kernelmark.launches.context import DistributedBenchContext
from kernelmark.launches.ranks import Ranks, slowest


class Stream:
    def synchronize(self) -> None: ...


def alone(max_reduce) -> Ranks:
    return Ranks(DistributedBenchContext(0, 1, lambda: None, max_reduce, Stream()))


@pytest.mark.parametrize("single_precision", [False, True], ids=["double", "single"])
def test_every_rank_learns_every_number_and_every_text(on_ranks, single_precision: bool) -> None:
    texts = ["", "µs and ns", "x" * 100]

    def body(context):
        ranks = Ranks(context)
        return ranks.values(context.rank * 1000), ranks.texts(texts[context.rank])

    found = on_ranks(3, body, single_precision=single_precision)
    assert found == [((0, 1000, 2000), tuple(texts))] * 3


@given(st.text(alphabet=string.printable + "é漢🎉"))
def test_a_text_of_one_rank_comes_back_as_it_is_or_cut(text: str) -> None:
    (found,) = alone(lambda value: value).texts(text)
    assert found == text or text.encode().startswith(found.rstrip("\ufffd").encode())
    assert len(text.encode()) > 1500 or found == text


@pytest.mark.spec("X15")
def test_ranks_that_agree_go_on_and_ranks_that_do_not_all_say_what_each_one_wants(on_ranks) -> None:
    assert on_ranks(3, lambda context: Ranks(context).agree("the list", "a, b")) == [None] * 3

    found = on_ranks(
        3, lambda context: Ranks(context).agree("the list", "a, c" if context.rank == 1 else "a, b")
    )
    assert len({str(error) for error in found}) == 1
    assert isinstance(found[0], DistributedError)
    assert "do not agree on the list" in str(found[0])
    assert "rank 0: a, b; rank 1: a, c; rank 2: a, b" in str(found[0])


@pytest.mark.spec("X15")
@pytest.mark.parametrize("answer", [math.nan, math.inf, 3.0, None, "7"])
def test_a_reduction_that_cannot_be_the_largest_is_refused(answer: object) -> None:
    with pytest.raises(DistributedError, match=r"max_reduce\(7\.0\) returned .* on rank 0"):
        alone(lambda value: answer).values(7.0)


@pytest.mark.spec("X15")
def test_a_rank_from_which_nothing_comes_is_named() -> None:
    ranks = Ranks(DistributedBenchContext(0, 2, lambda: None, lambda value: value, Stream()))
    with pytest.raises(DistributedError, match=r"gave nothing from rank 1: no process has that rank"):
        ranks.values(7.0)


@pytest.mark.spec("X14")
def test_the_slowest_rank_counts_sample_by_sample() -> None:
    assert slowest([(1, 9), (9, 1), (5, 6)]) == (9, 9, 6)
