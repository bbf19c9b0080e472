"""The wheel holds what the source holds, and works without the repository around it."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel with the backend of pyproject.toml; nothing is fetched."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_every_file_of_the_source_is_in_the_wheel_data_among_it(wheel: Path) -> None:
    source = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    suites = {name for name in packed if name.startswith("kernelmark/kernelbench/suites/")}
    assert packed - suites == source
    assert {path.rsplit(".", 1)[-1] for path in packed} >= {"py", "typed", "yaml"}


def test_the_suites_and_our_own_models_are_in_the_wheel(wheel: Path) -> None:
    examples = ROOT / "examples" / "KernelBench"
    kept = {
        f"kernelmark/kernelbench/suites/{path.relative_to(examples).as_posix()}"
        for path in examples.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    assert kept <= packed
    assert "kernelmark/kernelbench/suites/own.yaml" in packed


def test_the_license_travels_with_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
        assert b"MIT License" in archive.read(name)


def test_the_command_of_the_wheel_runs_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    entry_points = configparser.ConfigParser()
    entry_points.read(tmp_path.glob("*.dist-info/entry_points.txt"))
    module, function = entry_points["console_scripts"]["kernelmark"].split(":")
    program = (
        f"import sys, {module}\n"
        f"assert {module}.__file__.startswith(sys.argv[1]), {module}.__file__\n"
        f"{module}.{function}(['--help'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout
