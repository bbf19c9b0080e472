"""A schedule may say how many of the target's threads its code uses, and take part in a search with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmark.errors import ScheduleError
from torchsched.descriptors import load_schedule
from torchsched.targets import Target

Write = Callable[[str, str], Path]
TARGET = Target("x86_64", threads=4, vector_bits=512, openmp="libomp.so")
DECLARED = "pipeline:\n  - pass: before{threads=$threads}\n  - include: inner.yaml\n  - pass: p\n    when: parallel\n"
INNER = "parameters:\n  threads: {default: 0, choices: [0, 1, 2, 8]}\npipeline:\n  - pass: inside{threads=$threads}\n"


@pytest.mark.parametrize(
    ("values", "threads", "steps"),
    [
        ({}, 4, ["before{threads=4}", "inside{threads=4}", "p"]),
        ({"threads": "2"}, 2, ["before{threads=2}", "inside{threads=2}", "p"]),
        ({"threads": 1}, 1, ["before{threads=1}", "inside{threads=1}"]),
        ({"threads": 8}, 4, ["before{threads=4}", "inside{threads=4}", "p"]),
    ],
)
def test_every_step_knows_how_many_threads_are_left_by_a_parameter(
    write: Write, values: dict[str, object], threads: int, steps: list[str]
) -> None:
    write("inner.yaml", INNER)
    schedule = load_schedule(write("s.yaml", DECLARED), TARGET, values=values)
    assert schedule.target.threads == threads
    assert [step.name for step in schedule.steps] == steps


def test_threads_can_be_changed_again_up_to_what_the_target_had(write: Write) -> None:
    write("inner.yaml", INNER)
    one = load_schedule(write("s.yaml", DECLARED), TARGET, values={"threads": 1})
    assert one.with_parameters(threads=2).target.threads == 2
    assert one.with_parameters(threads=0).target.threads == 4


def test_an_include_can_say_how_many_threads(write: Write) -> None:
    write("inner.yaml", INNER)
    text = "pipeline:\n  - include: inner.yaml\n    options: {threads: 2}\n"
    assert load_schedule(write("s.yaml", text), TARGET).target.threads == 2


@pytest.mark.spec("L8")
@pytest.mark.parametrize(
    "text", ["{default: -1}", "{default: 2.0}", "{default: true}", "{default: 0, choices: [0, -2]}"]
)
def test_a_number_of_threads_that_there_cannot_be_is_an_error_of_the_file(write: Write, text: str) -> None:
    path = write("s.yaml", f"parameters:\n  threads: {text}\npipeline:\n  - pass: cse\n")
    with pytest.raises(ScheduleError, match=r"s\.yaml:1: parameters: threads: .* no number of threads"):
        load_schedule(path, TARGET)


@pytest.mark.spec("L8")
def test_a_value_from_outside_is_an_error_of_the_declaration(write: Write) -> None:
    path = write("s.yaml", "parameters:\n  threads: {default: 0}\npipeline:\n  - pass: cse\n")
    with pytest.raises(ScheduleError, match=r"s\.yaml:2: .*threads=-3"):
        load_schedule(path, TARGET, values={"threads": "-3"})


def test_an_include_may_name_a_shipped_schedule(write: Write) -> None:
    schedule = load_schedule(write("s.yaml", "pipeline:\n  - include: shipped:loops.yaml\n"), TARGET)
    assert len(schedule.steps) > 5
    with pytest.raises(ScheduleError, match=r"s\.yaml:2: .*no file .*loop\.yaml; did you mean 'loops\.yaml'"):
        load_schedule(write("s.yaml", "pipeline:\n  - include: shipped:loop.yaml\n"), TARGET)


@pytest.mark.spec("L8")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", r"s\.yaml:3: provenance: empty; give at least one"),
        ("searched", r"s\.yaml:3: provenance: expected a mapping"),
        ("", r"s\.yaml:3: provenance: nothing stands here"),
    ],
)
def test_provenance_that_says_nothing_is_an_error(write: Write, text: str, message: str) -> None:
    path = write("s.yaml", f"pipeline:\n  - pass: cse\nprovenance: {text}\n")
    with pytest.raises(ScheduleError, match=message):
        load_schedule(path, TARGET)
