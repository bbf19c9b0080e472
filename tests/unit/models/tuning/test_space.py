"""The space is what a schedule declares, candidates come in one order for one seed, and what is written is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import RecordError, ScheduleError, UsageError
from kernelmark.models.tuning.space import Axis, Space, make_space, write_descriptor
from torchsched.descriptors import Schedule, load_schedule
from torchsched.descriptors.lookup import SHIPPED
from torchsched.targets import Target

TARGET = Target("x86_64", threads=2, vector_bits=512, openmp="libomp.so")
TEXT = """\
parameters:
  mr: {default: 8, choices: [4, 6, 8]}
  tiles: {default: [1, 8], choices: [[1, 8], [2, 16]]}
  free: {default: 3}
  one: {default: a, choices: [a]}
  threads: {default: 0, choices: [0, 1, 2, 16]}
pipeline:
  - pass: cse
"""

Load = Callable[..., Schedule]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load_text(text: str = TEXT, **values: object) -> Schedule:
        path = tmp_path / "s.yaml"
        path.write_text(text)
        return load_schedule(path, TARGET, values=values)

    return load_text


def test_parameters_with_several_choices_are_searched(load: Load) -> None:
    space = make_space(load())
    assert [axis.name for axis in space.axes] == ["mr", "tiles", "threads"]
    assert space.axes[0].values == (8, 4, 6)
    assert space.axes[1].values == ((1, 8), (2, 16))


def test_as_many_threads_as_the_target_has_are_tried_once_and_more_are_not(load: Load) -> None:
    assert make_space(load()).axes[2].values == (0, 1)
    assert make_space(load(threads=2), search={"threads": "1,2,16"}).axes[0].values == (2, 1)


def test_a_value_that_is_set_is_the_default_of_the_search(load: Load) -> None:
    space = make_space(load(mr=4), search={"mr": None})
    assert space.axes == (Axis("mr", (4, 6, 8), 4),)
    assert space.candidates(1, seed=0)[0].label == "default"


def test_a_parameter_that_is_held_is_not_searched(load: Load) -> None:
    assert [axis.name for axis in make_space(load(mr=4), held=["mr"]).axes] == ["tiles", "threads"]


def test_values_to_try_may_be_named(load: Load) -> None:
    space = make_space(load(), search={"free": "1,2", "tiles": "[2, 16]"})
    assert [axis.values for axis in space.axes] == [(3, 1, 2), ((1, 8), (2, 16))]
    first, *others = (each.label for each in space.candidates(9, seed=0))
    assert first == "default"
    assert "free=2 tiles=2,16" in others


@pytest.mark.spec("L8")
@pytest.mark.parametrize(
    ("search", "held", "error", "message"),
    [
        ({"tile": None}, (), ScheduleError, r"--search tile: .*not declared; did you mean 'tiles'\?"),
        (
            {"mr": "4,5"},
            (),
            ScheduleError,
            r"s\.yaml:2: parameters\.mr: mr=5 is none of the choices: 4, 6, 8",
        ),
        ({"mr": "x"}, (), ScheduleError, r"s\.yaml:2: .*expected an int"),
        ({"mr": ""}, (), UsageError, r"--search mr=: name the values"),
        (
            {"free": None},
            (),
            ScheduleError,
            r"s\.yaml:4: .*free has no choices; name the values .*--search free=",
        ),
        ({"mr": "4"}, ("mr",), UsageError, r"--search mr: --param holds it"),
        ({"one": None}, (), ScheduleError, r"s\.yaml:1: .*no parameter left.*free without choices"),
        ({}, ("mr", "tiles", "threads"), ScheduleError, r"mr, tiles, threads held by --param"),
    ],
)
def test_what_cannot_be_searched_is_an_error(
    load: Load, search: dict[str, str | None], held: tuple[str, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make_space(load(), search=search, held=held)


@pytest.mark.spec("L8")
def test_a_schedule_without_parameters_cannot_be_searched(load: Load) -> None:
    with pytest.raises(ScheduleError, match=r"s\.yaml:1: s declares no parameters"):
        make_space(load("pipeline:\n  - pass: cse\n"))


sizes = st.lists(st.integers(2, 5), min_size=1, max_size=4)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    axes = []
    for number, size in enumerate(draw(sizes)):
        values = tuple(range(10, 10 + size))
        axes.append(Axis(f"p{number}", values, draw(st.sampled_from(values))))
    return Space(tuple(axes))


@given(spaces(), st.integers(0, 10), st.integers(1, 700))
def test_no_candidate_comes_twice_and_the_default_is_first(space: Space, seed: int, count: int) -> None:
    found = space.candidates(count, seed=seed)
    assert len(found) == min(count, space.size)
    assert [each.number for each in found] == list(range(len(found)))
    assert len({tuple(each.values.items()) for each in found}) == len(found)
    assert len({each.label for each in found}) == len(found)
    assert found[0].values == {axis.name: axis.default for axis in space.axes}
    assert all(each.values[axis.name] in axis.values for each in found for axis in space.axes)


@given(spaces(), st.integers(0, 10), st.integers(1, 50), st.integers(0, 50))
def test_asking_for_more_does_not_change_the_first(space: Space, seed: int, count: int, more: int) -> None:
    assert space.candidates(count + more, seed=seed)[:count] == space.candidates(count, seed=seed)


def test_another_seed_is_another_order() -> None:
    space = Space((Axis("a", tuple(range(50)), 0),))
    one, same, other = (space.candidates(50, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other
    assert {each.label for each in one} == {each.label for each in other}


def test_a_space_too_large_to_lay_out_has_an_order() -> None:
    space = Space(tuple(Axis(f"p{number}", tuple(range(10)), 0) for number in range(30)))
    assert space.size == 10**30
    assert len(space.candidates(5, seed=3)) == 5


HOST = Target("x86_64", threads=4, vector_bits=512, openmp="libomp.so")
MINE = """\
description: mine
parameters:
  mr: {default: 8, choices: [4, 8]}
  tiles: {default: [1, 8]}
  word: {default: "on", choices: ["on", "no: way", "3"]}
  share: {default: 0.5, choices: [0.5, 1.0e-05]}
  flag: {default: true}
  threads: {default: 0, choices: [0, 1, 2]}
pipeline:
  - pass: a{mr=$mr tiles=$tiles word=$word share=$share flag=$flag threads=$threads}
"""
PROVENANCE = {
    "made": "2026-03-01T12:00:00+00:00",
    "machine": "A: CPU #3",
    "ratio": {"value": 1.25, "low": None},
}


def test_the_values_are_in_force_and_can_still_be_changed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    source = tmp_path / "mine" / "s.yaml"
    source.write_text(MINE)
    schedule = load_schedule(source, HOST, values={"flag": "false"})
    values = {"mr": 4, "tiles": (2, 16), "word": "no: way", "share": 1e-05, "threads": 2}
    path = write_descriptor(tmp_path / "out" / "tuned.yaml", schedule, values, PROVENANCE)
    tuned = load_schedule(path, HOST)
    assert tuned.values == {**values, "flag": False}
    assert tuned.target.threads == 2
    assert [step.name for step in tuned.steps] == [
        "a{mr=4 tiles=2,16 word=no: way share=1e-05 flag=false threads=2}"
    ]
    assert tuned.provenance == PROVENANCE
    assert "include: ../mine/s.yaml" in path.read_text()
    assert tuned.with_parameters(mr=8).values["mr"] == 8
    assert {each.name: each.choices for each in tuned.parameters}["mr"] == (4, 8)


def test_a_shipped_schedule_is_included_from_its_root(tmp_path: Path) -> None:
    schedule = load_schedule(SHIPPED / "matmul.yaml", HOST, values={"mr": 4})
    path = write_descriptor(tmp_path / "tuned.yaml", schedule, {"kc": 256}, PROVENANCE)
    text = path.read_text()
    assert "- include: shipped:matmul.yaml" in text
    assert str(SHIPPED) not in text
    tuned = load_schedule(path, HOST)
    assert (tuned.values["mr"], tuned.values["kc"], tuned.values["nr"]) == (4, 256, 0)
    assert [step.name for step in tuned.steps] == [
        step.name for step in schedule.with_parameters(kc=256).steps
    ]


def test_several_pipelines_follow_one_another(tmp_path: Path) -> None:
    schedule = load_schedule((SHIPPED / "matmul.yaml", SHIPPED / "loops.yaml"), HOST)
    text = write_descriptor(tmp_path / "tuned.yaml", schedule, {}, PROVENANCE).read_text()
    assert text.index("shipped:matmul.yaml") < text.index("shipped:loops.yaml")


def test_a_value_that_was_none_of_the_choices_becomes_one(tmp_path: Path) -> None:
    source = tmp_path / "s.yaml"
    source.write_text("parameters:\n  n: {default: 3}\npipeline:\n  - pass: a{n=$n}\n")
    path = write_descriptor(tmp_path / "t.yaml", load_schedule(source, HOST), {"n": 5}, PROVENANCE)
    assert load_schedule(path, HOST).values == {"n": 5}


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    schedule = load_schedule(SHIPPED / "matmul.yaml", HOST)
    with pytest.raises(RecordError, match=r"cannot make the folder .* --write"):
        write_descriptor(tmp_path / "file" / "t.yaml", schedule, {}, PROVENANCE)
