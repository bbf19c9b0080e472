"""The direction of imports, and that the check of it would notice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "kernelmark"


def _lint_imports(source: Path) -> subprocess.CompletedProcess[str]:
    """Run the contracts of pyproject.toml on the kernelmark in ``source``."""
    program = (
        "import sys; from importlinter.cli import lint_imports\n"
        "sys.exit(lint_imports(config_filename=sys.argv[1], no_cache=True, no_logo=True))"
    )
    return subprocess.run(
        [sys.executable, "-c", program, str(ROOT / "pyproject.toml")],
        cwd=source.parent,
        env={**os.environ, "PYTHONPATH": str(source), "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copied_source(tmp_path: Path) -> Path:
    """Give a copy of ``src`` that a test may spoil."""
    shutil.copytree(PACKAGE, tmp_path / "src" / "kernelmark", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "src"


def test_every_import_points_down() -> None:
    done = _lint_imports(ROOT / "src")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_folder_with_modules_is_a_package_so_that_the_contracts_see_it() -> None:
    blind = {path.parent for path in PACKAGE.rglob("*.py") if not (path.parent / "__init__.py").is_file()}
    assert not blind


def test_an_import_that_points_up_is_noticed(copied_source: Path) -> None:
    with (copied_source / "kernelmark" / "units.py").open("a") as file:
        file.write("\n\ndef _late():\n    import kernelmark.records\n")
    done = _lint_imports(copied_source)
    assert done.returncode != 0
    assert "kernelmark.units -> kernelmark.records" in done.stdout


def test_a_package_that_stands_in_no_layer_is_noticed(copied_source: Path) -> None:
    (copied_source / "kernelmark" / "stray").mkdir()
    (copied_source / "kernelmark" / "stray" / "__init__.py").write_text("")
    done = _lint_imports(copied_source)
    assert done.returncode != 0
    assert "stray" in done.stdout


def test_an_import_of_the_op_library_is_noticed(copied_source: Path) -> None:
    with (copied_source / "kernelmark" / "units.py").open("a") as file:
        file.write("\n\ndef _late():\n    import tileops\n")
    done = _lint_imports(copied_source)
    assert done.returncode != 0
    assert "kernelmark.units -> tileops" in done.stdout
