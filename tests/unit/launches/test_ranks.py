"""What one rank says about itself, and what ranks tell each other over the largest of one number."""

from __future__ import annotations

import dataclasses
import math
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import DistributedError, UsageError
from kernelmark.launches.ranks import DistributedBenchContext, Ranks, leaving_on_error, slowest


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


# --- one rank about itself ---------------------------------------------------------------------------


def context(**changed) -> DistributedBenchContext:
    given = {"rank": 0, "world_size": 2, "barrier": list, "max_reduce": float, "stream": Stream(), **changed}
    return DistributedBenchContext(**given)


@pytest.mark.spec("X12")
@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"rank": 2}, "rank=2 with world_size=2: ranks go from 0 to 1"),
        ({"rank": -1}, "rank=-1 with world_size=2"),
        ({"rank": True}, "rank=True: give a whole number"),
        ({"rank": 0.0}, r"rank=0\.0: give a whole number"),
        ({"world_size": 0}, "world_size=0: give the number of ranks, at least 1"),
        ({"world_size": -3}, "world_size=-3"),
        ({"world_size": "2"}, "world_size='2': give a whole number"),
        ({"barrier": None}, "barrier=None: give a callable"),
        ({"max_reduce": 3}, "max_reduce=3: give a callable"),
        ({"stream": None}, r"stream=None has no synchronize\(\)"),
        ({"stream": 7}, r"stream=7 has no synchronize\(\)"),
        ({"device": 1}, "device=1: give None or a name"),
        ({"leave": "now"}, "leave='now': give None or a callable"),
    ],
)
def test_a_context_that_cannot_work_is_refused(bad: dict, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        context(**bad)


def test_a_context_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        context().rank = 1  # type: ignore[misc]


@pytest.mark.spec("X12")
def test_ranks_of_torch_need_a_process_group_first() -> None:
    with pytest.raises(UsageError, match=r"init_process_group\(\) on every rank first"):
        DistributedBenchContext.from_torch()


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf"), True, "5"])
def test_a_time_limit_that_is_none_is_refused(limit: object) -> None:
    with pytest.raises(UsageError, match=r"timeout_s=.*: give a number of seconds above 0"):
        DistributedBenchContext.from_torch(timeout_s=limit)  # type: ignore[arg-type]


@pytest.mark.spec("X15")
def test_the_others_are_told_why_this_rank_gives_up() -> None:
    reasons: list[str] = []
    with pytest.raises(ValueError, match="boom"), leaving_on_error(context(leave=reasons.append)):
        raise ValueError("boom")
    assert reasons == ["ValueError: boom"]


@pytest.mark.spec("X15")
def test_nobody_is_told_where_the_others_are_what_failed() -> None:
    reasons: list[str] = []
    with pytest.raises(DistributedError), leaving_on_error(context(leave=reasons.append)):
        raise DistributedError("rank 1 is gone")
    assert not reasons


def test_an_error_stays_the_error_if_telling_the_others_fails() -> None:
    def leave(reason: str) -> None:
        raise OSError("no route")

    with pytest.raises(ValueError, match="boom") as caught, leaving_on_error(context(leave=leave)):
        raise ValueError("boom")
    assert "no route" in caught.value.__notes__[0]


@pytest.mark.parametrize("given", [None, object()])
def test_without_other_ranks_there_is_nobody_to_tell(given: object) -> None:
    with pytest.raises(ValueError, match="boom"), leaving_on_error(given):
        raise ValueError("boom")
