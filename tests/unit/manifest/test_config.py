from __future__ import annotations

from pathlib import Path

import pytest

from kernelmark.errors import ConfigError
from kernelmark.manifest import LibraryConfig, find_library

TABLE = """\
[tool.kernelmark]
name = "mylib"
manifest = "src/mylib/manifest"
ops = "mylib.ops"
cases = "benchmarks._cases"
benchmarks = "benchmarks/ops"
"""


def test_the_nearest_file_above_that_has_the_table_is_read(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(TABLE)
    below = tmp_path / "pkg" / "deep"
    below.mkdir(parents=True)
    (tmp_path / "pkg" / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    assert find_library(below) == LibraryConfig(
        root=tmp_path,
        name="mylib",
        manifest=tmp_path / "src/mylib/manifest",
        ops="mylib.ops",
        cases="benchmarks._cases",
        benchmarks=tmp_path / "benchmarks/ops",
    )


def test_a_file_may_be_the_start(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(TABLE)
    (tmp_path / "bench_x.py").write_text("")
    assert find_library(tmp_path / "bench_x.py").root == tmp_path


def test_a_project_without_the_table_is_told_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"no pyproject.toml with \[tool.kernelmark\] in .*; .*write one: name ="
    ):
        find_library(tmp_path)


def test_a_start_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: there is no such folder"):
        find_library(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "mylib"\n', "", "tool.kernelmark.name: missing; write name ="),
        ('name = "mylib"', "name = 3", "tool.kernelmark.name: expected text, got 3"),
        ('name = "mylib"', 'name = " "', "tool.kernelmark.name: expected text, got ' '"),
        ('ops = "mylib.ops"', 'ops = "mylib/ops"', "tool.kernelmark.ops: 'mylib/ops' is no module name"),
        ('cases = "benchmarks._cases"', 'cases = "a b"', "tool.kernelmark.cases: 'a b' is no module name"),
        ("manifest =", "manifests =", "tool.kernelmark.manifests: unknown key; did you mean 'manifest'?"),
        ("[tool.kernelmark]", "[tool]\nkernelmark = 3\n[x]", "tool.kernelmark: expected a table, got 3"),
        ("[tool.kernelmark]", "[tool.kernelmark", "not TOML"),
    ],
)
def test_a_malformed_table_is_named_by_file_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(TABLE.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        find_library(tmp_path)
    assert str(caught.value).startswith(f"{file}: {message}")


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"pyproject\.toml: not TOML"):
        find_library(tmp_path)
