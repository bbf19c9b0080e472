"""A worker compiles candidates with the real compiler, and has the real engine check and time them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmark.errors import ModelFileError
from kernelmark.models.request import ModelRequest
from kernelmark.models.tuning.jobs import (
    Answer,
    Answers,
    CheckJob,
    MeasureJob,
    read_answers,
    read_job,
    write_job,
)
from kernelmark.models.tuning.space import Candidate
from kernelmark.models.tuning.worker import carry_out
from kernelmark.records import Cache, Check, Row
from kernelmark.report.notes import note_text
from kernelmark.timing import Budget
from tests.unit.models.tuning.conftest import HEADER
from torchsched.bindings import available
from torchsched.elements import Element

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)

QUICK = Budget(warmup_ms=0, sample_ms=1, min_count=4, max_count=8, blocks=2, prepare_ms=1)

LIMIT_S = 100.0


def candidate(number: int, how: str) -> Candidate:
    return Candidate(number, {"how": how}, f"how={how}")


def request(workplace: Path, model: str = "product", **more: object) -> ModelRequest:
    path = workplace / f"{model}.py"
    return ModelRequest(path, pipeline=(str(workplace / "ways.yaml"),), threads=1, **more)  # type: ignore[arg-type]


def check(
    workplace: Path, tmp_path: Path, *hows: str, known: dict[str, str] | None = None, model: str = "product"
) -> Answer:
    candidates = tuple(candidate(number, how) for number, how in enumerate(hows))
    job = CheckJob(request(workplace, model), Element.F32, HEADER, "c", candidates, known or {}, LIMIT_S)
    path = tmp_path / "answers.jsonl"
    carry_out(job, Answers(path))
    return read_answers(path)


@pytest.fixture(scope="module")
def answer(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """Check candidates that end in every way in which the worker lives on."""
    hows = ("plain", "packed", "same", "wrong", "refuse", "raise")
    return check(workplace, tmp_path_factory.mktemp("answers"), *hows)


def by_way(answer: Answer) -> dict[str, Row]:
    return {row.implementation.removeprefix("how="): row for row in answer.rows}


@pytest.mark.spec("L3")
def test_every_candidate_has_a_row_whatever_becomes_of_it(answer: Answer) -> None:
    assert answer.ended
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


def test_candidates_of_the_same_code_are_told(answer: Answer) -> None:
    rows = by_way(answer)
    assert rows["same"].params["same"] == "how=plain"
    assert rows["same"].params["code"] == rows["plain"].params["code"] != rows["packed"].params["code"]
    assert "same" not in rows["packed"].params
    assert rows["same"].outputs == ()  # it was not checked once more


def test_a_wrong_answer_is_shown_with_its_error(answer: Answer) -> None:
    row = by_way(answer)["wrong"]
    assert "stage" not in row.params
    assert row.outputs[0].mismatched > 0
    assert "output" in note_text(row.note)


@pytest.mark.parametrize(("how", "told"), [("refuse", "no tile fits"), ("raise", "there is not that much")])
def test_one_that_does_not_get_through_the_compiler_names_the_stage(
    answer: Answer, how: str, told: str
) -> None:
    row = by_way(answer)[how]
    assert row.params["stage"] == "lower"
    assert told in note_text(row.note)


def test_what_is_right_by_luck_is_wrong_on_a_second_draw(workplace: Path, tmp_path: Path) -> None:
    (row,) = check(workplace, tmp_path, "lucky", model="identity").rows
    assert row.check is Check.FAILED
    assert note_text(row.note).startswith("right on the first draw of the inputs, and on a second one:")
    assert row.case == "c"


def test_code_that_another_worker_has_checked_is_known(
    workplace: Path, tmp_path: Path, answer: Answer
) -> None:
    code = str(by_way(answer)["plain"].params["code"])
    (row,) = check(workplace, tmp_path, "same", known={code: "how=plain"}).rows
    assert row.params["same"] == "how=plain"


def test_contestants_are_timed_in_one_interleaved_run(workplace: Path, tmp_path: Path) -> None:
    contestants = (candidate(0, "plain"), candidate(1, "packed"))
    job = MeasureJob(
        request(workplace, cache=Cache.COLD),
        Element.F32,
        HEADER,
        "r",
        contestants,
        QUICK,
        {"rung": 1},
        LIMIT_S,
    )
    path = write_job(job, tmp_path / "job")
    assert read_job(path) == job
    carry_out(read_job(path), Answers(tmp_path / "answers.jsonl"))
    ours, other = read_answers(tmp_path / "answers.jsonl").rows
    assert (ours.implementation, ours.role) == ("how=plain", "ours")
    assert ours.timing is not None
    assert other.timing is not None
    assert [each.block for each in ours.timing.passes] == [0, 0, 1, 1]
    assert [each.position for each in other.timing.passes] == [1, 2, 0, 3]
    assert other.ratio is not None
    assert other.ratio.blocks == 2
    assert ours.params["rung"] == other.params["rung"] == 1


def test_one_that_is_wrong_leaves_a_run_without_times(workplace: Path, tmp_path: Path) -> None:
    contestants = (candidate(0, "plain"), candidate(1, "wrong"))
    job = MeasureJob(request(workplace), Element.F32, HEADER, "r", contestants, QUICK, {}, LIMIT_S)
    carry_out(job, Answers(tmp_path / "a"))
    answer = read_answers(tmp_path / "a")
    assert [row.check for row in answer.rows] == [Check.VERIFIED, Check.FAILED]
    assert all(row.timing is None for row in answer.rows)
    assert answer.error is not None


def test_one_that_no_longer_compiles_is_named(workplace: Path, tmp_path: Path) -> None:
    contestants = (candidate(0, "plain"), candidate(1, "refuse"))
    job = MeasureJob(request(workplace), Element.F32, HEADER, "r", contestants, QUICK, {}, LIMIT_S)
    carry_out(job, Answers(tmp_path / "a"))
    answer = read_answers(tmp_path / "a")
    assert answer.error is not None
    assert answer.error[0] == "ModelLoweringError"
    assert answer.at == 1


def test_a_model_that_cannot_be_loaded_is_an_answer(workplace: Path, tmp_path: Path) -> None:
    (workplace / "empty.py").write_text("")
    answer = check(workplace, tmp_path, "plain", model="empty")
    assert answer.error is not None
    assert answer.error[0] == ModelFileError.__name__
    assert "defines no class Model" in answer.error[1]
    assert answer.rows == ()
