"""Candidates are matched with their problems by name; what fits none is named with what is near."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmark.errors import UsageError
from kernelmark.kernelbench.candidates.finding import find_candidates
from kernelmark.kernelbench.suite import Entry, load_suite

OWN = load_suite(Path(__file__).parents[4] / "examples" / "KernelBench" / "own.yaml").entries


def write(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return folder


def found(folder: Path, entries: tuple[Entry, ...] = OWN, **options: int) -> dict[str, str]:
    return {each.name: each.entry.kernel for each in find_candidates(folder, entries, **options)}


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("level1/8_softmax.py", None),
        ("level1/8_whatever.py", None),
        ("level1/8.py", None),
        ("level_1/8_softmax.py", None),
        ("level1/8_softmax/first.py", None),
        ("level1/8_softmax/deep/er/12_second.py", None),
        ("level_1_problem_8_sample_0_kernel.py", None),
        ("level_1_problem_8.py", None),
        ("runs/today/level_1_problem_8_sample_3_kernel.py", None),
        ("8_mine.py", 1),
        ("8_mine/sample_0.py", 1),
    ],
)
def test_a_name_gives_level_and_number_in_each_of_the_layouts(
    tmp_path: Path, name: str, level: int | None
) -> None:
    assert found(write(tmp_path, name), level=level) == {name: "level1/8_softmax.py"}


def test_several_samples_of_a_problem_are_each_one_in_the_order_of_the_suite(tmp_path: Path) -> None:
    names = ("level1/10_x.py", "level1/8_b.py", "level1/8_a/2.py", "level2/1_y.py", "level1/8_a/1.py")
    assert list(found(write(tmp_path, *names))) == [
        "level1/8_a/1.py",
        "level1/8_a/2.py",
        "level1/8_b.py",
        "level1/10_x.py",
        "level2/1_y.py",
    ]


def test_what_is_no_candidate_is_left_alone(tmp_path: Path) -> None:
    names = (
        "level1/8_a.py",
        "level1/__init__.py",
        "level1/__pycache__/9_x.py",
        ".git/7_x.py",
        "level1/8_a.txt",
    )
    assert list(found(write(tmp_path, *names))) == ["level1/8_a.py"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("level1/99_a.py", "level1 has no problem 99; near it are .*level1/22_scale_by_number.py"),
        ("level7/1_a.py", "the suite has no level7; it has level1, level2, level3"),
        ("level1/99_softmax.py", "did you mean .*level1/8_softmax.py"),
        ("8_softmax.py", "its name gives a number and no level; add --level"),
        (
            "matmul_softmax.py",
            "its name gives no level and number of a problem; .*level2/3_matmul_softmax_sum.py",
        ),
        ("level1/softmax.py", "did you mean .*level1/8_softmax.py"),
        ("level_1_problem_99_sample_0_kernel.py", "level1 has no problem 99"),
    ],
)
def test_a_file_that_fits_no_problem_is_named_with_what_is_near(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"1 of 2 files fit no problem.*\n  {name}: .*{why}"):
        found(write(tmp_path, name, "level1/8_a.py"))


def test_only_a_few_lost_files_are_listed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"9 of 9 files(?:.*\n)*  and 4 more"):
        found(write(tmp_path, *(f"level9/{number}_a.py" for number in range(9))))


def test_no_folder_and_no_file_are_errors_of_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such folder"):
        found(tmp_path / "none")
    with pytest.raises(UsageError, match="holds no Python file; write level1/"):
        found(tmp_path)
