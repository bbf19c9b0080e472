from __future__ import annotations

from pathlib import Path

from kernelmark.manifest.levels import Finding, Level, check_files


def test_a_whole_manifest_has_no_findings(folder: Path) -> None:
    result = check_files(folder)
    assert (result.level, result.checked, result.what, result.findings) == (Level.SCHEMA, 1, "files", ())


def test_every_problem_of_every_file_is_a_finding_with_its_place(folder: Path, gemm: str) -> None:
    (folder / "gemm.yaml").write_text(
        gemm.replace("mutates: [a]", "mutates: [x]").replace("{c: a}", "{c: y}")
    )
    (folder / "x.yaml").write_text("a: 1\na: 2")
    result = check_files(folder)
    assert [finding.where for finding in result.errors] == [
        f"{folder}/gemm.yaml:20: ops.BmmFwdOp.effects.mutates.0",
        f"{folder}/gemm.yaml:21: ops.BmmFwdOp.effects.aliases.c",
        f"{folder}/x.yaml:2: a",
    ]
    assert result.checked == 2


def test_a_missing_folder_is_a_finding(tmp_path: Path) -> None:
    (finding,) = check_files(tmp_path / "none").errors
    assert finding == Finding(str(tmp_path / "none"), finding.message)
    assert "no such folder" in finding.message
