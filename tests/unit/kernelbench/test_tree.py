from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernelmark.errors import UnavailableError, UsageError
from kernelmark.kernelbench.suite import load_suite
from kernelmark.kernelbench.tree import VARIABLE, check_tree, find_tree

SUITE = Path(__file__).parents[3] / "examples" / "KernelBench" / "level1.yaml"


def tree(folder: Path, *names: str) -> Path:
    for name in names:
        file = folder / "KernelBench" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    return folder


@pytest.mark.spec("L13")
def test_without_a_tree_the_error_says_how_to_get_one() -> None:
    with pytest.raises(UnavailableError, match=r"git clone .*--kernelbench-root or KERNELBENCH_ROOT"):
        find_tree(None, {})


@pytest.mark.spec("L13")
def test_the_option_and_the_variable_name_the_repository_or_the_folder_in_it(tmp_path: Path) -> None:
    root = tree(tmp_path, "level1/1_a.py")
    inside = root / "KernelBench"
    assert find_tree(root, {}) == inside
    assert find_tree(inside, {}) == inside
    assert find_tree(None, {VARIABLE: str(root)}) == inside


@pytest.mark.parametrize("name", ["empty", "missing"])
def test_a_folder_that_is_no_tree_is_refused_by_the_name_it_was_given_with(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="--kernelbench-root"):
        find_tree(tmp_path / name, {})
    with pytest.raises(UsageError, match=VARIABLE):
        find_tree(None, {VARIABLE: str(tmp_path / name)})


def test_what_differs_from_the_suite_is_named(tmp_path: Path) -> None:
    entries = load_suite(SUITE).entries
    names = [entry.kernel for entry in entries]
    root = tree(tmp_path, *names[1:], "level1/101_New.py")
    found = check_tree(find_tree(root, {}), entries)
    assert found.missing == (names[0],)
    assert found.extra == ("level1/101_New.py",)
    assert not found.agrees
    assert f"missing: {names[0]}" in found.lines()
    assert "no git checkout" in found.revision


def test_the_revision_is_asked_of_git(tmp_path: Path) -> None:
    root = tree(tmp_path, "level1/1_a.py")
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "one")):
        subprocess.run(["git", "-C", str(root), *command], check=True)
    found = check_tree(find_tree(root, {}), [])
    assert len(found.revision) == 7
    assert not found.agrees  # another revision than the suites'
    assert "the suites were written for 423217d" in found.lines()[1]
