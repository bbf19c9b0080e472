from __future__ import annotations

from pathlib import Path

import pytest

from kernelmark.errors import ManifestError
from kernelmark.manifest import load_manifest, read_manifest


def test_ops_come_in_the_order_of_file_names_then_of_the_files(tmp_path: Path, gemm: str) -> None:
    op = gemm.partition("ops:\n")[2]
    second = gemm + op.replace("BmmFwdOp", "AaaOp")
    (tmp_path / "b.yaml").write_text(second)
    (tmp_path / "a.yml").write_text(gemm.replace("gemm", "other").replace("BmmFwdOp", "ZzzOp"))
    (tmp_path / ".c.yaml").write_text("not: read")
    (tmp_path / "notes.txt").write_text("not read")
    assert list(load_manifest(tmp_path).ops) == ["ZzzOp", "BmmFwdOp", "AaaOp"]


def test_an_op_in_two_files_is_refused_with_both_places(folder: Path, gemm: str) -> None:
    (folder / "later.yaml").write_text(gemm.replace("family: gemm", "family: later"))
    with pytest.raises(ManifestError) as caught:
        load_manifest(folder)
    assert str(caught.value).startswith(
        f"{folder}/later.yaml:3: ops.BmmFwdOp: op 'BmmFwdOp' is already declared in "
    )
    assert "gemm.yaml:3" in str(caught.value)


def test_a_family_in_two_files_is_refused_with_both_places(folder: Path, gemm: str) -> None:
    (folder / "later.yaml").write_text(gemm.replace("BmmFwdOp", "OtherOp"))
    with pytest.raises(
        ManifestError, match=r"later\.yaml:1: family: family 'gemm' is already declared in .*:1"
    ):
        load_manifest(folder)


def test_one_problem_is_raised_as_it_is(folder: Path, gemm: str) -> None:
    (folder / "gemm.yaml").write_text(gemm.replace("family: gemm", "family: 3"))
    with pytest.raises(ManifestError) as caught:
        load_manifest(folder)
    assert (caught.value.path, caught.value.line, caught.value.field) == (
        str(folder / "gemm.yaml"),
        1,
        "family",
    )
    assert "\n" not in str(caught.value)


def test_several_problems_are_all_in_the_message_and_the_first_gives_the_place(
    folder: Path, gemm: str
) -> None:
    (folder / "gemm.yaml").write_text(gemm.replace("family: gemm", "family: 3"))
    (folder / "x.yaml").write_text("a: 1\na: 2")
    with pytest.raises(ManifestError) as caught:
        load_manifest(folder)
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{folder}/gemm.yaml:1: family: ")
    assert second.startswith(f"{folder}/x.yaml:2: a: duplicate key")
    assert caught.value.line == 1


def test_a_flood_of_problems_is_cut_and_says_so(tmp_path: Path) -> None:
    for i in range(30):
        (tmp_path / f"f{i:02}.yaml").write_text("[")
    with pytest.raises(ManifestError) as caught:
        load_manifest(tmp_path)
    assert str(caught.value).splitlines()[-1] == "and 9 more"


def test_the_ops_of_whole_files_are_there_beside_the_problems_of_others(folder: Path) -> None:
    (folder / "x.yaml").write_text("a: 1\na: 2")
    manifest, problems = read_manifest(folder)
    assert list(manifest.ops) == ["BmmFwdOp"]
    assert len(problems) == 1


def test_a_missing_folder_an_empty_one_and_a_file_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "README.md").write_text("no manifest")
    for folder, message in (
        (tmp_path / "none", "no such folder"),
        (file, "this is a file"),
        (empty, "no .yaml file"),
    ):
        with pytest.raises(ManifestError, match=message) as caught:
            load_manifest(folder)
        assert caught.value.path == str(folder)


def test_a_dangling_link_is_named(folder: Path) -> None:
    (folder / "x.yaml").symlink_to(folder / "nowhere.yaml")
    with pytest.raises(ManifestError, match=r"x\.yaml: cannot be read: No such file"):
        load_manifest(folder)
