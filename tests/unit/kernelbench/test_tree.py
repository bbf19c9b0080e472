from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernelmark.errors import UnavailableError, UsageError
from kernelmark.kernelbench import tree as trees
from kernelmark.kernelbench.suite import load_suite
from kernelmark.kernelbench.tree import LEVELS, OWN, VARIABLE, check_tree, choose, find_tree

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
    assert (
        found.lines()[-1] == "not as revision 423217d: 1 kernel missing, 99 files changed, 1 file in no suite"
    )
    assert "no git checkout" in found.revision


def test_a_file_with_the_contents_of_the_suites_revision_is_known_without_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = load_suite(SUITE).entries[:2]
    root = tree(tmp_path, *(entry.kernel for entry in entries)) / "KernelBench"
    (root / entries[0].kernel).write_bytes(b"one\r\n")
    monkeypatch.setattr(trees, "_contents", lambda: {each.kernel: "5626abf0f72e58d7" for each in entries})
    found = check_tree(root, entries)
    assert found.changed == (entries[1].kernel,)
    assert not found.agrees
    (root / entries[1].kernel).write_text("one\n")
    found = check_tree(root, entries)
    assert found.agrees
    assert found.lines()[-1].startswith("2 files are as revision 423217d has them")


def test_the_contents_of_every_kernel_of_the_suites_are_known() -> None:
    known = trees._contents()
    files = [SUITE.with_name(f"{level}.yaml") for level in LEVELS]
    assert known.keys() == {entry.kernel for file in files for entry in load_suite(file).entries}
    assert all(len(digits) == 16 for digits in known.values())


def test_the_revision_is_asked_of_git(tmp_path: Path) -> None:
    root = tree(tmp_path, "level1/1_a.py")
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "one")):
        subprocess.run(["git", "-C", str(root), *command], check=True)
    found = check_tree(find_tree(root, {}), [])
    assert len(found.revision) == 7
    assert found.lines()[1] == f"revision: {found.revision}"


def test_without_a_suite_and_a_tree_it_is_our_own_models_and_it_says_so(tmp_path: Path) -> None:
    assert choose([], environment={}).fallen_back
    assert not choose([OWN], environment={}).fallen_back
    root = tree(tmp_path, "level1/1_a.py")
    assert {entry.level for entry in choose([], root=root).entries} == set(LEVELS)
    found = choose([], kernels=["level2/1_"], environment={VARIABLE: str(root)})
    assert {entry.level for entry in found.entries} == {"level2"}


@pytest.mark.parametrize(
    ("suites", "words"),
    [
        (
            ["nosuch"],
            "--suite nosuch: there is no such suite, and no such file; suites .*own, level1, level2, level3",
        ),
        (["leve1"], "did you mean 'level1'"),
        (["own", "level1"], "run it by itself"),
    ],
)
def test_a_suite_that_there_is_none_of_is_told_with_those_there_are(suites: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        choose(suites, environment={})
