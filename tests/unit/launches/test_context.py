"""What one rank says about itself is checked when it is said."""

from __future__ import annotations

import dataclasses

import pytest

from kernelmark.errors import DistributedError, UsageError
from kernelmark.launches.context import DistributedBenchContext, leaving_on_error


class Stream:
    def synchronize(self) -> None: ...


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
