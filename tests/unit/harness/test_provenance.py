"""Where and with what a run is made."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kernelmark.harness.provenance import environment, now, run_name


def _git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(
        ["git", *identity, "-C", str(folder), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_revision_is_that_of_the_folder_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "op.py").write_text("")
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "an op")
    found = environment(tmp_path)
    assert found.git_revision == _git(tmp_path, "rev-parse", "HEAD")
    assert found.git_dirty is False


def test_a_folder_outside_any_repository_has_no_revision(tmp_path: Path) -> None:
    found = environment(tmp_path / "none")
    assert (found.git_revision, found.git_dirty) == (None, None)
    assert "torch" in found.libraries


def test_names_of_runs_sort_by_time_and_differ() -> None:
    assert run_name() != run_name()
    assert now().endswith("+00:00")
