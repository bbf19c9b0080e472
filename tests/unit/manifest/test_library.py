from __future__ import annotations

from pathlib import Path

import pytest

from kernelmark.errors import ConfigError, UnavailableError
from kernelmark.manifest import LibraryConfig, find_library
from kernelmark.manifest.library import import_foreign

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


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_module_that_imports_is_given(library: Path) -> None:
    (library / "foreign_fine.py").write_text("x = 3")
    assert import_foreign("foreign_fine", ConfigError).x == 3


@pytest.mark.parametrize("name", ["foreign_none", "foreign_none.ops", "foreign_package.none"])
def test_a_module_that_is_not_there_is_said_to_be_missing(library: Path, name: str) -> None:
    (library / "foreign_package").mkdir(exist_ok=True)
    with pytest.raises(ConfigError, match=r"there is no module 'foreign_(none|package\.none)'"):
        import_foreign(name, ConfigError)


@pytest.mark.parametrize(
    "source",
    ["import no_such_dependency", "from no_such_dependency.x import y", "from json import no_such_name"],
)
def test_what_the_module_needs_and_this_machine_lacks_is_no_fault_of_the_name(
    library: Path, source: str
) -> None:
    (library / "foreign_needy.py").write_text(source)
    with pytest.raises(UnavailableError, match=r"foreign_needy cannot be imported here: .*no_such"):
        import_foreign("foreign_needy", ConfigError)


@pytest.mark.parametrize(("source", "cause"), [("x = (", "SyntaxError"), ("1 / 0", "ZeroDivisionError")])
def test_a_module_that_raises_is_told_with_the_cause(library: Path, source: str, cause: str) -> None:
    (library / "foreign_raising.py").write_text(source)
    with pytest.raises(ConfigError, match=f"importing foreign_raising raised {cause}"):
        import_foreign("foreign_raising", ConfigError)
