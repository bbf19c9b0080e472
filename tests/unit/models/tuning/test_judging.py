"""Candidates that hang or crash are judged in processes that are ended; nothing else is lost with them.

A worker compiles candidates with the real compiler, and has the real engine check and time them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelmark.errors import (
    CrashedError,
    KernelmarkError,
    ModelFileError,
    ModelLoweringError,
    VerificationError,
)
from kernelmark.models.request import ModelRequest, TuneRequest, packed
from kernelmark.models.tuning.judging import ProcessJudge, TuneJob, carry_out
from kernelmark.models.tuning.space import Candidate
from kernelmark.records import Cache, Check, Row
from kernelmark.report.notes import note_text
from kernelmark.timing import Budget
from tests.unit.models.tuning.conftest import HEADER
from torchsched.bindings import available

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)

QUICK = Budget(warmup_ms=0, sample_ms=1, min_count=8, max_count=8, blocks=4, prepare_ms=1)


def candidate(number: int, how: str) -> Candidate:
    return Candidate(number, {"how": how}, f"how={how}")


@pytest.fixture(scope="module")
def judge(workplace: Path) -> Iterator[ProcessJudge]:
    model = ModelRequest(workplace / "product.py", pipeline=(str(workplace / "ways.yaml"),), threads=1)
    with ProcessJudge(TuneRequest(model), HEADER) as opened:
        yield opened


@pytest.mark.spec("L12")
def test_one_that_crashes_has_a_row_and_the_others_are_checked(judge: ProcessJudge) -> None:
    hows = ("plain", "crash", "packed")
    left = [candidate(number, how) for number, how in enumerate(hows)]
    rows = judge.check("c", left, {})
    rows += judge.check("c", left[len(rows) :], {})
    assert [row.implementation for row in rows] == [f"how={how}" for how in hows]
    assert [row.check for row in rows] == [Check.VERIFIED, Check.FAILED, Check.VERIFIED]
    assert note_text(rows[1].note).startswith("lower: its process died of SIGSEGV")
    assert rows[1].params == {"stage": "lower", "died": True}


@pytest.mark.spec("L12")
def test_one_that_hangs_and_holds_the_interpreter_is_ended_at_its_limit(
    judge: ProcessJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "limit_s", 1.0)
    (row,) = judge.check("c", [candidate(0, "hang")], {})
    assert row.check is Check.FAILED
    assert row.params["stage"] in ("import", "lower")  # a busy machine may not come further in a second
    assert "it did not end within 1 s; --limit gives it more" in note_text(row.note)


def test_a_run_that_one_contestant_kills_names_it(judge: ProcessJudge) -> None:
    measured = judge.measure("r", [candidate(0, "plain"), candidate(1, "crash")], QUICK, {})
    assert measured.rows == ()
    assert measured.at == "how=crash"
    assert "SIGSEGV" in measured.death


def test_a_model_that_cannot_be_loaded_is_the_error_that_it_is(
    judge: ProcessJudge, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workplace / "broken.py").write_text("class Model: pass\n")
    monkeypatch.setattr(judge, "_request", TuneRequest(ModelRequest(workplace / "broken.py")))
    with pytest.raises(ModelFileError, match="must be a class derived from"):
        judge.check("c", [candidate(0, "plain")], {})


def test_a_model_that_kills_its_process_is_no_candidates_fault(
    judge: ProcessJudge, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workplace / "deadly.py").write_text("import os\nos.abort()\n")
    monkeypatch.setattr(judge, "_request", TuneRequest(ModelRequest(workplace / "deadly.py")))
    with pytest.raises(CrashedError, match="no candidate was come to: its process died of SIGABRT"):
        judge.check("c", [candidate(0, "plain")], {})


SHORT = Budget(warmup_ms=0, sample_ms=1, min_count=4, max_count=8, blocks=2, prepare_ms=1)

LIMIT_S = 100.0


def request(workplace: Path, model: str = "product", **more: object) -> ModelRequest:
    path = workplace / f"{model}.py"
    return ModelRequest(path, pipeline=(str(workplace / "ways.yaml"),), threads=1, **more)  # type: ignore[arg-type]


class Told:
    """Plays the channel: keeps what a worker tells."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.at: str | None = None
        self.stages: list[str] = []
        self.error: KernelmarkError | None = None

    def tell(self, value: Any) -> None:
        if "row" in value:
            self.rows.append(value["row"])
        else:
            self.at = value["candidate"]

    def stage(self, name: str, *, limit_s: float | None = None) -> None:
        assert (limit_s is None) is (name == "measure")
        self.stages.append(name)


def told_by(job: TuneJob) -> Told:
    told: Any = Told()
    try:
        carry_out(packed(job), told)
    except KernelmarkError as error:
        told.error = error
    return told


def check(workplace: Path, *hows: str, known: dict[str, str] | None = None, model: str = "product") -> Told:
    candidates = tuple(candidate(number, how) for number, how in enumerate(hows))
    asked = request(workplace, model)
    return told_by(TuneJob(asked, HEADER, "c", candidates, LIMIT_S, known=known or {}))


def measure(workplace: Path, *hows: str, facts: dict[str, Any] | None = None) -> Told:
    contestants = tuple(candidate(number, how) for number, how in enumerate(hows))
    asked = request(workplace, cache=Cache.COLD)
    return told_by(TuneJob(asked, HEADER, "r", contestants, LIMIT_S, budget=SHORT, facts=facts or {}))


@pytest.fixture(scope="module")
def answer(workplace: Path) -> Told:
    """Check candidates that end in every way in which the worker lives on."""
    hows = ("plain", "packed", "same", "wrong", "refuse", "raise")
    return check(workplace, *hows)


def by_way(answer: Told) -> dict[str, Row]:
    return {row.implementation.removeprefix("how="): row for row in answer.rows}


@pytest.mark.spec("L3")
def test_every_candidate_has_a_row_whatever_becomes_of_it(answer: Told) -> None:
    assert answer.error is None
    checks = {name: row.check for name, row in by_way(answer).items()}
    assert checks == {
        "plain": Check.VERIFIED,
        "packed": Check.VERIFIED,
        "same": Check.VERIFIED,
        "wrong": Check.FAILED,
        "refuse": Check.FAILED,
        "raise": Check.FAILED,
    }


def test_candidates_of_the_same_code_are_told(answer: Told) -> None:
    rows = by_way(answer)
    assert rows["same"].params["same"] == "how=plain"
    assert rows["same"].params["code"] == rows["plain"].params["code"] != rows["packed"].params["code"]
    assert "same" not in rows["packed"].params
    assert rows["same"].outputs == ()  # it was not checked once more


def test_a_wrong_answer_is_shown_with_its_error(answer: Told) -> None:
    row = by_way(answer)["wrong"]
    assert "stage" not in row.params
    assert row.outputs[0].mismatched > 0
    assert "output" in note_text(row.note)


@pytest.mark.parametrize(("how", "told"), [("refuse", "no tile fits"), ("raise", "there is not that much")])
def test_one_that_does_not_get_through_the_compiler_names_the_stage(
    answer: Told, how: str, told: str
) -> None:
    row = by_way(answer)[how]
    assert row.params["stage"] == "lower"
    assert told in note_text(row.note)


def test_what_is_right_by_luck_is_wrong_on_a_second_draw(workplace: Path) -> None:
    (row,) = check(workplace, "lucky", model="identity").rows
    assert row.check is Check.FAILED
    assert note_text(row.note).startswith("right on the first draw of the inputs, and on a second one:")
    assert row.case == "c"


def test_code_that_another_worker_has_checked_is_known(workplace: Path, answer: Told) -> None:
    code = str(by_way(answer)["plain"].params["code"])
    (row,) = check(workplace, "same", known={code: "how=plain"}).rows
    assert row.params["same"] == "how=plain"


def test_contestants_are_timed_in_one_interleaved_run(workplace: Path) -> None:
    told = measure(workplace, "plain", "packed", facts={"rung": 1})
    assert told.stages[-1] == "measure"
    ours, other = told.rows
    assert (ours.implementation, ours.role) == ("how=plain", "ours")
    assert ours.timing is not None
    assert other.timing is not None
    assert [each.block for each in ours.timing.passes] == [0, 0, 1, 1]
    assert [each.position for each in other.timing.passes] == [1, 2, 0, 3]
    assert other.ratio is not None
    assert other.ratio.blocks == 2
    assert ours.params["rung"] == other.params["rung"] == 1


def test_one_that_is_wrong_leaves_a_run_without_times(workplace: Path) -> None:
    told = measure(workplace, "plain", "wrong")
    assert [row.check for row in told.rows] == [Check.VERIFIED, Check.FAILED]
    assert all(row.timing is None for row in told.rows)
    assert isinstance(told.error, VerificationError)


def test_one_that_no_longer_compiles_is_named(workplace: Path) -> None:
    told = measure(workplace, "plain", "refuse")
    assert isinstance(told.error, ModelLoweringError)
    assert told.at == "how=refuse"


def test_a_worker_of_a_model_that_cannot_be_loaded_raises_what_it_is(workplace: Path) -> None:
    (workplace / "empty.py").write_text("")
    told = check(workplace, "plain", model="empty")
    assert isinstance(told.error, ModelFileError)
    assert "defines no class Model" in str(told.error)
    assert told.rows == []
