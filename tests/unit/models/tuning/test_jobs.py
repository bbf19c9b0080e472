"""What a worker answers can be read also after its death."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmark.errors import TimingError
from kernelmark.models.tuning.jobs import Answers, read_answers
from kernelmark.models.tuning.space import Candidate
from kernelmark.records import Check, Role, Row

FIRST, SECOND = (Candidate(number, {"a": number}, f"a={number}") for number in (0, 1))
ROW = Row(
    case="c",
    implementation="a=0",
    role=Role.OURS,
    check=Check.FAILED,
    note="a worst error of inf",
    params={"fill": float("-inf")},
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "answers.jsonl"


def test_rows_and_the_end_come_back(path: Path) -> None:
    answers = Answers(path)
    answers.begin(FIRST, "import")
    answers.row(ROW)
    answers.begin(SECOND, "lower")
    answers.end()
    read = read_answers(path)
    assert read.rows == (ROW,)
    assert (read.ended, read.at, read.stage, read.error) == (True, 1, "lower", None)


def test_a_death_leaves_the_candidate_and_its_stage(path: Path) -> None:
    answers = Answers(path)
    answers.row(ROW)
    answers.begin(SECOND, "compile")
    with open(path, "ab") as stream:
        stream.write(b'{"row": {"case": "c"')
    read = read_answers(path)
    assert (read.ended, read.at, read.stage) == (False, 1, "compile")
    assert read.rows == (ROW,)
    answers.end()


def test_an_error_comes_back_by_its_class(path: Path) -> None:
    answers = Answers(path)
    answers.error(TimingError("the clock went back"))
    answers.end()
    assert read_answers(path).error == ("TimingError", "the clock went back")


def test_a_worker_that_never_began_has_answered_nothing(path: Path) -> None:
    read = read_answers(path)
    assert (read.rows, read.ended, read.at) == ((), False, None)
