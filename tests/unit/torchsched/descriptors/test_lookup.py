"""A pipeline's name leads to a file: features first, then the target, then what serves every target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmark.errors import ScheduleError
from torchsched.descriptors import SHIPPED, find_schedule, list_schedules
from torchsched.elements import Element
from torchsched.targets import Feature, Target, override

Write = Callable[[str, str], Path]
AVX512 = override(Target("x86_64"), feature="avx512_bf16")
AVX2 = override(Target("x86_64"), feature="avx2")
ARM = override(Target("aarch64"), feature="sve")


def file(write: Write, name: str) -> Path:
    return write(name, f"description: {name}\npipeline:\n  - pass: cse\n")


def found(root: Path, target: Target, pipeline: str = "matmul", element: Element = Element.F32) -> str:
    return find_schedule(pipeline, element, target, roots=[root]).description


@pytest.mark.spec("L7")
def test_features_come_first_then_the_target_then_what_serves_all(write: Write, tmp_path: Path) -> None:
    places = [
        "x86_64/avx512_bf16/matmul/f32.yaml",
        "x86_64/avx512/matmul/f32.yaml",
        "x86_64/avx2/matmul/f32.yaml",
        "x86_64/matmul/f32.yaml",
        "x86_64/matmul.yaml",
        "matmul/f32.yaml",
        "matmul.yaml",
    ]
    for place in places:
        file(write, place)
    file(write, "x86_64/amx/matmul/f32.yaml")  # a feature that this target lacks
    for place in places:
        assert found(tmp_path, AVX512) == place
        (tmp_path / place).unlink()


@pytest.mark.spec("L7")
def test_a_feature_that_is_asked_for_changes_what_is_found(write: Write, tmp_path: Path) -> None:
    file(write, "x86_64/avx512/matmul/f32.yaml")
    file(write, "x86_64/avx2/matmul/f32.yaml")
    file(write, "aarch64/neon/matmul/f32.yaml")
    assert found(tmp_path, AVX512) == "x86_64/avx512/matmul/f32.yaml"
    assert found(tmp_path, override(AVX512, feature="avx2")) == "x86_64/avx2/matmul/f32.yaml"
    assert found(tmp_path, ARM) == "aarch64/neon/matmul/f32.yaml"


def test_the_element_type_chooses_the_file(write: Write, tmp_path: Path) -> None:
    file(write, "matmul/f32.yaml")
    file(write, "matmul/bf16.yaml")
    assert found(tmp_path, AVX2, element=Element.BF16) == "matmul/bf16.yaml"


def test_the_users_roots_come_before_the_shipped_one(write: Write, tmp_path: Path) -> None:
    file(write, "loops.yaml")
    file(write, "other/loops.yaml")
    assert found(tmp_path, AVX2, "loops") == "loops.yaml"
    schedule = find_schedule("loops", Element.F32, AVX2, roots=[tmp_path / "other", tmp_path])
    assert schedule.description == "other/loops.yaml"
    assert find_schedule("loops", Element.F32, AVX2).paths == (SHIPPED / "loops.yaml",)


def test_a_pipeline_that_there_is_none_of_is_refused_with_near_names_and_the_places(
    write: Write, tmp_path: Path
) -> None:
    file(write, "x86_64/hadamard/f32.yaml")
    file(write, "x86_64/amx/hadamards/f32.yaml")
    with pytest.raises(ScheduleError) as raised:
        find_schedule("hadamrd", Element.F32, AVX2, roots=[tmp_path])
    text = str(raised.value)
    assert "no schedule 'hadamrd' for f32 on x86_64; did you mean 'hadamard'" in text
    assert "hadamards" not in text.splitlines()[0]  # it asks for a feature that is not there
    assert f"{tmp_path}/x86_64/avx2/hadamrd/f32.yaml" in text
    with pytest.raises(ScheduleError, match="for bf16 on x86_64; it has schedules for f32"):
        find_schedule("hadamard", Element.BF16, AVX2, roots=[tmp_path])


def test_a_part_is_no_pipeline(write: Write, tmp_path: Path) -> None:
    write("tail.yaml", "part: true\npipeline:\n  - pass: cse\n")
    with pytest.raises(ScheduleError, match="no schedule 'tail'"):
        find_schedule("tail", Element.F32, AVX2, roots=[tmp_path])
    assert "tail" not in [each.pipeline for each in list_schedules([tmp_path])]
    assert find_schedule(str(tmp_path / "tail.yaml"), Element.F32, AVX2).steps  # by its path it may be tried


@pytest.mark.spec("L7")
def test_files_override_the_lookup_and_may_follow_one_another(write: Write, tmp_path: Path) -> None:
    one, two = file(write, "one.yaml"), file(write, "two.yaml")
    schedule = find_schedule([str(one), str(two), "loops"], Element.F32, AVX2)
    assert schedule.paths == (one, two, SHIPPED / "loops.yaml")
    assert [step.name for step in schedule.steps][:2] == ["cse", "cse"]
    assert schedule.name == f"{one} then {two} then loops/f32"


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        ("no/such.yaml", "there is no file no/such.yaml; --list-schedules"),
        ("such.yaml", "there is no file such.yaml"),
        ((), "no pipeline is named"),
    ],
)
def test_a_file_that_is_not_there_is_refused(pipeline: str | tuple[str, ...], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        find_schedule(pipeline, Element.F32, AVX2)


def test_a_root_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match="none is no folder"):
        find_schedule("loops", Element.F32, AVX2, roots=[tmp_path / "none"])
    with pytest.raises(ScheduleError, match="none is no folder"):
        list_schedules([tmp_path / "none"])


def test_values_reach_the_schedule(write: Write, tmp_path: Path) -> None:
    write("m.yaml", "parameters:\n  mr: {default: 8}\npipeline:\n  - pass: x{mr=$mr}\n")
    schedule = find_schedule("m", Element.F32, AVX2, roots=[tmp_path], values={"mr": "4"})
    assert [step.name for step in schedule.steps] == ["x{mr=4}"]
    assert schedule.name == "m/f32"


def test_the_list_says_what_each_schedule_is_for(write: Write, tmp_path: Path) -> None:
    file(write, "x86_64/avx512/matmul/f32.yaml")
    file(write, "matmul/bf16.yaml")
    file(write, "mine.yaml")
    write("broken.yaml", "pipelin: []\n")
    write("x86_64/avx512/matmul/parts/deep.yaml", "pipeline: []\n")
    listed = {each.pipeline: each for each in list_schedules([tmp_path]) if not each.shipped}
    rows = [
        (each.pipeline, each.element, each.serves, each.description, each.problem is None)
        for each in list_schedules([tmp_path])
        if not each.shipped
    ]
    assert rows == [
        ("broken", None, "every target", "", False),
        ("matmul", Element.BF16, "every target", "matmul/bf16.yaml", True),
        ("mine", None, "every target", "mine.yaml", True),
        ("matmul", Element.F32, "x86_64/avx512", "x86_64/avx512/matmul/f32.yaml", True),
    ]
    assert "broken.yaml:1" in str(listed["broken"].problem)
    assert listed["matmul"].feature is Feature.AVX512
