"""Answers left by a worker are compared with the model's own; nothing in them is believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmark.errors import UsageError, VerificationError
from kernelmark.kernelbench.candidates.answers import compare_answers, leave_answers
from kernelmark.kernelbench.candidates.job import Job, Mode, Settings
from kernelmark.kernelbench.candidates.problem import Problem, load_problem

SOURCE = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)
    def forward(self, x):
        return {}
"""
SEEDS = (11, 12, 13)


@pytest.fixture
def problem(tmp_path: Path) -> Callable[..., tuple[Job, Problem]]:
    def make(
        answer: str = "torch.relu(x)", inputs: str = "64xf32xrnd", **settings: Any
    ) -> tuple[Job, Problem]:
        (tmp_path / "1_a.py").write_text(SOURCE.format(answer))
        job = Job(
            folder=tmp_path,
            name="a.py",
            candidate=tmp_path / "a.py",
            problem="level1/1_a.py",
            model=tmp_path / "1_a.py",
            inputs=inputs,
            init_args="[]",
            settings=Settings(device="cpu", **settings),
            extensions=tmp_path,
            drawn=SEEDS,
        )
        with torch.no_grad():
            return job, load_problem(job, "cpu")

    return make


def left(job: Job, made: Problem, answer: Callable[..., Any]) -> Any:
    with torch.no_grad():
        leave_answers(lambda: answer(*made.draws.arguments), made, SEEDS, job.folder, case_id="c")
        return compare_answers(job, made, "cpu")


def test_right_answers_to_all_draws_pass(problem) -> None:
    job, made = problem()
    found = left(job, made, torch.relu)
    assert (found.wrong, found.vacuous, found.undone) == ("", "", "")
    assert found.outputs


def test_one_wrong_draw_is_named(problem) -> None:
    job, made = problem()
    calls: list[int] = []

    def forgetful(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return torch.relu(x) if len(calls) != 2 else torch.relu(x) * 1.01

    found = left(job, made, forgetful)
    assert found.wrong.startswith("draw 2 of 3: output (float32, 64): ")


def test_writing_the_inputs_is_found_from_what_they_were_afterwards(problem) -> None:
    job, made = problem()
    assert left(job, made, torch.relu_).wrong == "draw 1 of 3: it wrote to its inputs"


def test_a_model_that_drops_at_random_drops_the_same_from_the_same_seed(problem) -> None:
    job, made = problem("self.drop(x)")
    assert left(job, made, lambda x: torch.nn.functional.dropout(x, 0.5, training=True)).wrong == ""
    job, made = problem("self.drop(x)", mode=Mode.EVAL)
    assert left(job, made, lambda x: x.clone()).wrong == ""


@pytest.mark.parametrize(
    ("answer", "inputs"), [("x.softmax(0).sum()", "64xf32xrnd"), ("torch.ones(3)", "9xf32xrnd")]
)
def test_an_answer_that_is_the_same_for_all_draws_proves_nothing(problem, answer: str, inputs: str) -> None:
    job, made = problem(answer, inputs)
    found = left(job, made, lambda x: torch.ones(()) if "sum" in answer else torch.ones(3))
    assert found.wrong == ""
    assert found.vacuous


def test_where_no_other_inputs_can_be_drawn_the_same_answer_is_right(problem) -> None:
    job, made = problem("x @ torch.arange(16.).view(4, 4)", "4x4xf32xid")
    assert (
        left(job, made, lambda x: torch.arange(16.0).view(4, 4)).vacuous.startswith("the check is vacuous")
        is False
    )


def test_what_is_no_plain_tensor_is_not_left(problem) -> None:
    class Own(torch.Tensor):
        pass

    job, made = problem()
    with pytest.raises(VerificationError, match="a tensor subclass that may compute"):
        left(job, made, lambda x: x.as_subclass(Own))
    with pytest.raises(VerificationError, match="gave something else: a object is no plain data"):
        left(job, made, lambda x: object())


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("nothing", "left no answers that can be read"),
        ("{}", "left no answers that can be read"),
        ('[{"inputs": 3}]', "it wrote to its inputs"),
        (
            '[{"outputs": {"tensor": "float32", "shape": [9], "data": true}}]',
            "left no answers that can be read",
        ),
    ],
)
def test_a_forged_table_proves_nothing(problem, told: str, words: str) -> None:
    job, made = problem()
    left(job, made, torch.relu)
    (job.folder / "answers.json").write_text(told)
    with torch.no_grad():
        assert words in compare_answers(job, made, "cpu").wrong


def test_answers_that_were_not_left_are_told(problem) -> None:
    job, made = problem()
    left(job, made, torch.relu)
    (job.folder / "answers.json").write_text("[]")
    with torch.no_grad():
        assert "too large to be handed over" in compare_answers(job, made, "cpu").undone
        (job.folder / "answers.bin").write_bytes(b"")
        (job.folder / "answers.json").write_text(json.dumps([{"inputs": "x", "outputs": {}}]))
        other = replace(job, folder=job.folder / "nowhere")
        assert "left no answers" in compare_answers(other, made, "cpu").wrong


def test_a_problem_whose_own_model_writes_its_inputs_cannot_be_judged(problem) -> None:
    with pytest.raises(UsageError, match=r"its own Model writes to its inputs \(inputs\[0\]\)"):
        problem("x.relu_()")


COUNTS = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.zeros(4)
        self.register_buffer("weight", torch.ones(4))
    def forward(self, x):
        self.hidden = self.hidden + x * self.weight
        return self.hidden
"""


def test_a_model_that_goes_on_from_its_last_call_is_put_back_before_each(problem, tmp_path: Path) -> None:
    job, _ = problem(inputs="4xf32xrnd")
    job.model.write_text(COUNTS)
    with torch.no_grad():
        made = load_problem(job, "cpu")
        x = torch.randn(4)
        first = made.answer(x)
        assert torch.equal(first, x)
        assert torch.equal(made.answer(x), first)
        assert first.data_ptr() != made.model.hidden.data_ptr()
        assert not made.kept.is_empty
