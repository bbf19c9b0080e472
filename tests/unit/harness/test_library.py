"""The case registry: what it must hold, and how a mistake in it is told."""

from __future__ import annotations

import marshal
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmark.errors import ConfigError, EntryError, ManifestError
from kernelmark.harness import Entry, cases, library_at


@pytest.fixture
def copy(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the toy library, under a name of its own, to break."""
    root = tmp_path / "library"
    shutil.copytree(toy, root, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "toy_cases").rename(root / "copied_cases")
    project = root / "pyproject.toml"
    project.write_text(project.read_text().replace("toy_cases", "copied_cases"))
    for name in [name for name in sys.modules if name.startswith("copied_cases")]:
        del sys.modules[name]
    monkeypatch.chdir(root)
    return root


@pytest.mark.spec("T3")
def test_an_op_without_an_entry_fails_with_its_name_and_the_registry_folder(toy: Path) -> None:
    from toy_ops import LonelyOp

    with pytest.raises(EntryError, match=r"LonelyOp has no entry in toy_cases .*toy_library/toy_cases"):
        cases(LonelyOp)


@pytest.mark.spec("T3")
def test_an_op_registered_twice_fails_with_both_places(copy: Path) -> None:
    (copy / "copied_cases" / "again.py").write_text(
        "from kernelmark import Entry\nENTRIES = {'ScaleOp': Entry(None)}\n"
    )
    with pytest.raises(
        EntryError, match=r"ScaleOp is registered twice: in copied_cases\.again and in copied"
    ):
        library_at(copy)


@pytest.mark.spec("T3")
def test_an_entry_that_names_no_op_fails_with_near_names(copy: Path) -> None:
    (copy / "copied_cases" / "again.py").write_text(
        "from kernelmark import Entry\nENTRIES = {'ScalesOp': Entry(None)}\n"
    )
    with pytest.raises(
        EntryError, match=r"names 'ScalesOp', which the manifest does not have; near names: ScaleOp"
    ):
        library_at(copy)


def test_an_entry_of_another_type_fails(copy: Path) -> None:
    (copy / "copied_cases" / "again.py").write_text("ENTRIES = {'LonelyOp': 3}\n")
    with pytest.raises(EntryError, match=r"ENTRIES\['LonelyOp'\] must be an Entry, got 3"):
        library_at(copy)


def test_a_registry_that_is_not_there_is_a_configuration_error(copy: Path) -> None:
    project = copy / "pyproject.toml"
    project.write_text(project.read_text().replace("copied_cases", "nowhere"))
    with pytest.raises(ConfigError, match=r"cases = 'nowhere' .*no such module"):
        library_at(copy)


def test_an_import_error_inside_the_registry_is_not_hidden(copy: Path) -> None:
    (copy / "copied_cases" / "again.py").write_text("import no_such_library\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        library_at(copy)


def test_an_op_that_the_manifest_does_not_have_is_named(toy: Path) -> None:
    class ScalingOp: ...

    with pytest.raises(ManifestError, match="ScalingOp"):
        cases(ScalingOp)


@pytest.mark.spec("T4")
def test_an_entry_has_the_documented_defaults() -> None:
    entry = Entry(list)
    assert (entry.inputs, entry.count_copies, entry.binder) == (None, False, None)


@pytest.mark.parametrize("op", ["toy_ops.ScaleOp", 'type("ScaleOp", (), {"__module__": "nowhere"})'])
def test_the_library_is_that_of_the_ops_file_or_of_the_callers_wherever_one_works(
    toy: Path, tmp_path: Path, op: str
) -> None:
    """A class that lies in no file is looked for from the file that asks for its cases."""
    asking = compile("found = cases(op)", str(toy / "bench_anywhere.py"), "exec")
    program = (
        f"import sys; sys.path.insert(0, {str(toy)!r}); import kernelmark, marshal, toy_ops;"
        f"names = {{'op': {op}, 'cases': kernelmark.cases}};"
        f"exec(marshal.loads({marshal.dumps(asking)!r}), names);"
        "print(len(names['found']), names['found'][0].home)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["3", str(toy)], done.stderr
