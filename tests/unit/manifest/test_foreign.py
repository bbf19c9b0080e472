from __future__ import annotations

from pathlib import Path

import pytest

from kernelmark.errors import ConfigError, UnavailableError
from kernelmark.manifest.foreign import import_foreign


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
