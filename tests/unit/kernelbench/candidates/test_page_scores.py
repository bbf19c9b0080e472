"""The score counts what is correct and more than p times as fast, and nothing else."""

from __future__ import annotations

from kernelmark.kernelbench.candidates.judged import Judged, Speedup
from kernelmark.kernelbench.candidates.page import fast_p
from kernelmark.kernelbench.statuses import Status


def one(
    problem: str,
    status: Status = Status.VERIFIED,
    value: float | None = None,
    low: float | None = None,
    high: float | None = None,
) -> Judged:
    speedups = {} if value is None else {"eager": Speedup(value, low, high)}
    return Judged(f"{problem}-{value}-{status}", problem, status, speedups=speedups)


def test_a_speedup_counts_where_it_is_above_p_and_not_where_it_equals_it() -> None:
    judged = [
        one("a", value=2.0, low=1.9, high=2.1),
        one("b", value=1.6, low=1.4, high=1.8),
        one("c", value=0.4, low=0.3, high=0.6),
        one("d", Status.WRONG, value=9.0, low=8.0, high=10.0),
    ]
    (score,) = fast_p(judged, ["eager"])
    assert (score.attempted, score.best) == (4, False)
    assert score.estimated == (0.75, 0.5, 0.5, 0.5, 0.0)
    assert score.certain == (0.75, 0.5, 0.5, 0.25, 0.0)


def test_what_is_not_verified_counts_among_what_was_attempted_only() -> None:
    others = [
        one(status.name, status, value=3.0, low=2.5, high=3.5)
        for status in Status
        if status is not Status.VERIFIED
    ]
    (score,) = fast_p([one("a", value=3.0, low=2.5, high=3.5), *others], ["eager"])
    assert score.estimated == score.certain == (1 / len(Status),) * 5


def test_a_correct_one_without_a_ratio_or_an_interval_counts_as_correct() -> None:
    (eager, inductor) = fast_p([one("a", value=3.0), one("b")], ["eager", "inductor"])
    assert eager.estimated == (1.0, 0.5, 0.5, 0.5, 0.5)
    assert eager.certain == inductor.estimated == (1.0, 0.0, 0.0, 0.0, 0.0)


def test_with_several_candidates_of_a_problem_the_best_of_each_is_scored_too() -> None:
    judged = [
        one("a", value=0.8, low=0.7, high=0.9),
        one("a", value=1.2, low=1.1, high=1.3),
        one("b", Status.CRASH),
    ]
    each, best = fast_p(judged, ["eager"])
    assert each.estimated == (2 / 3, 2 / 3, 1 / 3, 0.0, 0.0)
    assert (best.attempted, best.best) == (2, True)
    assert best.estimated == (0.5, 0.5, 0.5, 0.0, 0.0)


def test_nothing_attempted_has_no_score() -> None:
    assert fast_p([], ["eager"]) == ()
