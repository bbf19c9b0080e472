"""What is checked, raced and confirmed, in which order, and what is done again after a search was cut short.

Who stays in a race follows from the intervals, and where they do not decide, from the order of the ratios.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import CrashedError, ModelLoweringError, VerificationError
from kernelmark.models.tuning.book import Book, Phase
from kernelmark.models.tuning.run import Found, summarise_search, verdict
from kernelmark.models.tuning.search import (
    BATCH,
    CONFIRMATION,
    GROUP,
    RUNGS,
    Drop,
    Fate,
    Outcome,
    Race,
    Search,
    groups,
)
from kernelmark.models.tuning.space import Candidate
from kernelmark.records import Check, Ratio
from tests.unit.models.tuning.conftest import TableJudge

Make = Callable[[int], tuple[Candidate, ...]]
Open = Callable[[], Book]


def search(
    judge: TableJudge, candidates: Sequence[Candidate], book: Book, *, budget_s: float = 1000.0
) -> Outcome:
    played: Any = judge
    return Search("case", candidates, budget_s, played, book, clock=judge.clock).carry_out()


def fates(candidates: Sequence[Candidate], outcome: Outcome, book: Book) -> dict[str, str]:
    return {line.candidate.label: line.fate for line in summarise_search("case", candidates, outcome, book)}


def found(candidates: Sequence[Candidate], outcome: Outcome, book: Book) -> Found:
    lines = summarise_search("case", candidates, outcome, book)
    best = next(each for each in candidates if each.label == outcome.race.incumbent)
    return Found(lines, best, outcome, 100, book.folder, book.folder / "tuned.yaml")


def test_the_fastest_wins_and_is_measured_once_more_apart(candidates: Make, book: Open) -> None:
    judge, opened, all_of_them = TableJudge({"a=2": 50.0, "a=3": 60.0}), book(), candidates(5)
    outcome = search(judge, all_of_them, opened)
    assert outcome.race.incumbent == "a=2"
    assert outcome.confirmed
    assert outcome.confirmation is not None
    assert outcome.confirmation.value == pytest.approx(2.0)
    assert outcome.confirmation.blocks == CONFIRMATION.blocks
    assert judge.measured[-1] == ["a=2", "default"]
    told = found(all_of_them, outcome, opened)
    assert told.chosen.label == "a=2"
    assert verdict(told) == (
        "a=2 is 2.000 [2.000, 2.000] times as fast as the default, measured apart from the search."
    )
    shown = fates(all_of_them, outcome, opened)
    assert shown["a=2"] == "the winner, confirmed"
    assert shown["a=3"] == "rung 1: certainly slower than the incumbent"


def test_every_run_holds_the_incumbent_first_and_the_default(candidates: Make, book: Open) -> None:
    spreads = {f"a={number}": 0.3 for number in range(2, 12)}
    judge = TableJudge({"a=1": 80.0}, spreads)
    search(judge, candidates(12), book())
    first = [run for run in judge.measured if run[0] == "default"]
    later = [run for run in judge.measured[:-1] if run[0] == "a=1"]
    assert first
    assert later
    assert all(run[1] == "default" for run in later)
    assert judge.measured[-1] == ["a=1", "default"]


def test_the_same_code_is_measured_once_and_what_is_wrong_never(candidates: Make, book: Open) -> None:
    judge = TableJudge(
        checks={
            "a=1": (Check.VERIFIED, {"code": "x", "same": "default"}, "the same code as default"),
            "a=2": (Check.FAILED, {"code": "y"}, "output[0] differs"),
            "a=3": (Check.FAILED, {"stage": "compile", "died": True}, "compile: its process died of SIGSEGV"),
        }
    )
    opened = book()
    outcome = search(judge, candidates(5), opened)
    assert {label for run in judge.measured for label in run} == {"default", "a=4"}
    shown = fates(candidates(5), outcome, opened)
    assert shown["a=1"] == "the same code as default"
    assert shown["a=2"] == "output[0] differs"
    assert shown["a=3"] == "compile: its process died of SIGSEGV"
    counts = found(candidates(5), outcome, opened).counts
    assert counts == {"tried": 5, "failed": 2, "right": 2, "same_code": 1}


def test_where_nothing_is_certainly_faster_the_default_is_kept(candidates: Make, book: Open) -> None:
    judge = TableJudge({"a=1": 99.9}, {"a=1": 0.2})
    opened = book()
    outcome = search(judge, candidates(2), opened)
    assert [len(run) for run in judge.measured] == [2] * len(RUNGS)  # and no confirmation
    told = found(candidates(2), outcome, opened)
    assert told.chosen.label == "default"
    assert verdict(told) == "Nothing was certainly faster than the default parameters; they are kept."
    assert fates(candidates(2), outcome, opened) == {
        "default": "the default, and kept",
        "a=1": "not certainly slower than the winner, nor faster",
    }


def test_a_winner_that_is_not_faster_once_more_is_not_chosen(candidates: Make, book: Open) -> None:
    judge = TableJudge({"a=1": 90.0}, confirmed_ns={"a=1": 101.0})
    opened = book()
    outcome = search(judge, candidates(2), opened)
    told = found(candidates(2), outcome, opened)
    assert not outcome.confirmed
    assert (told.best.label, told.chosen.label) == ("a=1", "default")
    assert "not certainly faster; the default parameters are kept" in verdict(told)


def test_a_winner_that_cannot_be_confirmed_is_not_chosen(candidates: Make, book: Open) -> None:
    judge, opened = TableJudge({"a=1": 50.0}), book()
    played: Any = judge
    searching = Search("case", candidates(2), 1000.0, played, opened)
    checked = searching._check()
    race = searching._race(Race(alive=("a=1",)))
    judge.deadly = frozenset({"a=1"})
    ratio, trouble = searching._confirm(race.incumbent)
    assert ratio is None
    assert "SIGSEGV" in trouble
    told = found(candidates(2), Outcome(race, checked, True, ratio, trouble), opened)
    assert "could not be confirmed (compile: its process died of SIGSEGV)" in verdict(told)


def test_one_that_kills_a_run_costs_no_other_its_place(candidates: Make, book: Open) -> None:
    judge = TableJudge({"a=2": 50.0}, deadly=frozenset({"a=3"}))
    opened = book()
    outcome = search(judge, candidates(5), opened)
    assert outcome.race.dropped["a=3"] == Drop(Fate.FAILED, 0)
    assert all("a=3" not in run for run in judge.measured[5:])
    assert outcome.race.incumbent == "a=2"
    assert opened.failed(0) == {"a=3": "compile: its process died of SIGSEGV"}
    assert opened.state.spent_s == judge.now_s - 1  # but for the confirmation


def test_one_that_is_wrong_when_it_is_measured_leaves(candidates: Make, book: Open) -> None:
    judge = TableJudge({"a=2": 50.0}, wrong_later=frozenset({"a=1"}))
    outcome = search(judge, candidates(4), book())
    assert outcome.race.dropped["a=1"] == Drop(Fate.FAILED, 0)
    assert outcome.race.incumbent == "a=2"


def test_a_default_that_is_wrong_when_it_is_measured_ends_the_search(candidates: Make, book: Open) -> None:
    with pytest.raises(VerificationError, match="right when they were checked, and failed"):
        search(TableJudge(wrong_later=frozenset({"default"})), candidates(3), book())


@pytest.mark.parametrize(
    ("params", "note", "error"),
    [
        ({"code": "x"}, "output[0] differs", VerificationError),
        ({"stage": "lower"}, "lower: no such tile", ModelLoweringError),
        ({"stage": "compile", "died": True}, "compile: its process died of SIGSEGV", CrashedError),
    ],
)
def test_a_default_that_fails_ends_the_search(
    candidates: Make, book: Open, params: dict[str, object], note: str, error: type[Exception]
) -> None:
    judge = TableJudge(checks={"default": (Check.FAILED, dict(params), note)})
    with pytest.raises(error, match=f"nothing to compare with; {note.replace('[', '.').replace(']', '.')}"):
        search(judge, candidates(3), book())
    assert judge.measured == []


def test_checking_ends_where_its_share_of_the_budget_does(candidates: Make, book: Open) -> None:
    judge = TableJudge(job_s=10.0)
    opened = book()
    outcome = search(judge, candidates(5 * BATCH), opened, budget_s=40.0)
    assert len(judge.checked) == 2  # 20 s of 16
    assert not outcome.in_time
    assert len(judge.measured) == 2  # the rest of 40
    assert "--resume goes on" in verdict(found(candidates(5 * BATCH), outcome, opened))


def test_a_race_that_is_cut_short_still_knows_who_is_faster(candidates: Make, book: Open) -> None:
    judge = TableJudge({"a=1": 50.0, "a=5": 40.0}, job_s=10.0)
    outcome = search(judge, candidates(9), book(), budget_s=30.0)
    assert not outcome.in_time
    assert outcome.race.incumbent != "default"
    assert outcome.confirmed  # which is not part of the budget


@pytest.mark.parametrize("at", range(6))
def test_whatever_was_judged_is_not_judged_again(candidates: Make, book: Open, at: int) -> None:
    times, spreads = {"a=7": 70.0, "a=3": 75.0}, {f"a={number}": 0.3 for number in (2, 4, 5, 6)}
    whole, opened = TableJudge(times, spreads), book()
    expected = search(whole, candidates(10), opened)
    assert len(whole.measured) > 5
    opened.session.suspend()
    for file in opened.folder.iterdir():
        file.unlink()
    opened.folder.rmdir()

    cut, first = TableJudge(times, spreads, interrupt_at=at), book()
    with pytest.raises(KeyboardInterrupt):
        search(cut, candidates(10), first)
    first.session.suspend()
    again, second = TableJudge(times, spreads), book()
    outcome = search(again, candidates(10), second)
    assert again.checked == []
    assert [*cut.measured, *again.measured] == whole.measured
    assert (outcome.race, outcome.confirmation) == (expected.race, expected.confirmation)
    assert second.state.spent_s == pytest.approx(opened.state.spent_s)


def test_more_candidates_join_a_search_that_goes_on(candidates: Make, book: Open) -> None:
    judge, first = TableJudge({"a=5": 50.0}), book()
    search(judge, candidates(3), first)
    first.session.suspend()
    outcome = search(judge, candidates(8), book())
    assert judge.checked == [["default", "a=1", "a=2"], ["a=3", "a=4", "a=5", "a=6", "a=7"]]
    assert outcome.race.incumbent == "a=5"


def test_the_table_tells_times_against_the_default_whoever_was_the_incumbent(
    candidates: Make, book: Open
) -> None:
    judge = TableJudge({"a=1": 50.0, "a=2": 60.0}, {"a=2": 0.25, "a=1": 0.02})
    opened = book()
    outcome = search(judge, candidates(3), opened)
    lines = {
        line.candidate.label: line.row for line in summarise_search("case", candidates(3), outcome, opened)
    }
    assert lines["default"].ratio is None
    assert lines["default"].role == "ours"
    assert lines["a=1"].ratio is not None
    assert lines["a=1"].ratio.value == pytest.approx(0.5, rel=0.05)
    assert lines["a=2"].ratio is not None
    assert lines["a=2"].ratio.value == pytest.approx(0.6, rel=0.2)
    opened.record(lines.values(), Phase.SUMMARY)
    assert [row.params["phase"] for row in opened.session.rows[-3:]] == ["summary"] * 3


def ratio(value: float, reach: float = 0.01) -> Ratio:
    return Ratio(value=value, low=value - reach, high=value + reach, blocks=4)


def test_one_that_takes_certainly_longer_leaves() -> None:
    race = Race(alive=("1", "2")).after(0, {"1": ratio(1.2), "2": ratio(1.0, 0.1)})
    assert race.alive == ("2",)
    assert race.dropped == {"1": Drop(Fate.SLOWER, 0)}


def test_one_that_is_certainly_faster_takes_the_incumbents_place() -> None:
    race = Race(alive=("1", "2", "3")).after(0, {"1": ratio(0.9), "2": ratio(0.8), "3": ratio(0.82, 0.05)})
    assert race.incumbent == "2"
    assert race.alive == ("3",)
    assert race.dropped["1"] == Drop(Fate.SLOWER, 0)
    assert "default" not in race.dropped


def test_an_incumbent_that_is_beaten_leaves() -> None:
    race = Race(incumbent="5", alive=("1",)).after(1, {"1": ratio(0.9)})
    assert race == Race("1", (), {"5": Drop(Fate.SLOWER, 1)})


def test_of_the_undecided_the_better_half_goes_on() -> None:
    undecided = {str(number): ratio(1 + 0.001 * number, 0.05) for number in range(1, 6)}
    race = Race(alive=("5", "4", "3", "2", "1")).after(0, undecided)
    assert race.alive == ("3", "2", "1")
    assert race.dropped == {"4": Drop(Fate.BEHIND, 0), "5": Drop(Fate.BEHIND, 0)}


def test_where_no_rung_follows_the_undecided_stay() -> None:
    undecided = {str(number): ratio(1 + 0.001 * number, 0.05) for number in range(1, 6)}
    assert Race(alive=("1", "2", "3", "4", "5")).after(2, undecided, last=True).alive == (
        "1",
        "2",
        "3",
        "4",
        "5",
    )


def test_one_that_was_not_measured_stays_as_it_is() -> None:
    race = Race(alive=("1", "2")).after(0, {"1": ratio(0.5)}, last=True)
    assert race == Race("1", ("2",), {})


def test_a_ratio_without_an_interval_decides_nothing() -> None:
    race = Race(alive=("1",)).after(0, {"1": Ratio(value=0.1, blocks=1)})
    assert (race.incumbent, race.alive) == ("default", ("1",))


def test_one_that_failed_leaves_and_the_default_takes_an_incumbents_place() -> None:
    race = Race(incumbent="2", alive=("1", "3"))
    assert race.without("1", 1) == Race("2", ("3",), {"1": Drop(Fate.FAILED, 1)})
    assert race.without("2", 1) == Race("default", ("1", "3"), {"2": Drop(Fate.FAILED, 1)})


ratios = st.dictionaries(
    st.integers(1, 30).map(str),
    st.builds(ratio, st.floats(0.2, 3.0), st.floats(0.001, 0.15)),
    max_size=30,
)


@given(ratios, st.booleans())
def test_everyone_is_in_one_place_and_each_rung_is_smaller(found: dict[str, Ratio], last: bool) -> None:
    before = Race(alive=tuple(found))
    after = before.after(0, found, last=last)
    places = [*after.alive, *after.dropped, *({after.incumbent} - {"default"})]
    assert sorted(places) == sorted(found)
    assert last or len(after.alive) <= (len(found) + 1) // 2
    for label, each in found.items():
        if each.low is not None and each.low > 1:
            assert after.dropped[label].fate is Fate.SLOWER
    if after.incumbent != "default":
        assert (found[after.incumbent].high or 2) < 1


@given(st.integers(0, 40))
def test_runs_hold_everyone_once_and_few_at_a_time(count: int) -> None:
    labels = [str(number) for number in range(count)]
    parts = groups(labels)
    assert sorted(label for part in parts for label in part) == sorted(labels)
    assert all(1 <= len(part) <= GROUP for part in parts)
    assert max(map(len, parts), default=0) - min(map(len, parts), default=0) <= 1


def test_each_rung_measures_more_than_the_one_before() -> None:
    for less, more in pairwise(RUNGS):
        assert more.sample_ms == 3 * less.sample_ms
        assert more.blocks > less.blocks
    assert all(each.blocks >= 4 and each.min_count >= 2 * each.blocks for each in RUNGS)
