"""The user's op library: ``[tool.kernelmark]`` in the nearest ``pyproject.toml``, its modules, and one to start from.

Says what is written there; whether the folders exist is for those who use them.
"""

from __future__ import annotations

import importlib
import keyword
import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelmark.errors import ConfigError, KernelmarkError, UnavailableError, UsageError
from kernelmark.files import write_new
from kernelmark.text import suggestion

__all__ = ["LibraryConfig", "find_library", "import_foreign", "importing", "nearest_library", "write_library"]

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z", re.ASCII)
_EXAMPLE = (
    'name = "mylib", manifest = "manifest", ops = "mylib.ops", cases = "cases", benchmarks = "benchmarks"'
)


@dataclass(frozen=True, slots=True)
class LibraryConfig:
    """One op library."""

    root: Path
    """The folder of the ``pyproject.toml``; the modules below are importable from there."""
    name: str
    """What the library's own op is called in a report."""
    manifest: Path
    """The folder of the manifest."""
    ops: str
    """The module that holds the op classes."""
    cases: str
    """The package whose modules hold ``ENTRIES``."""
    benchmarks: Path
    """The folder of the ``bench_*.py`` files."""


def find_library(start: Path) -> LibraryConfig:
    """Read the configuration that is nearest to ``start``: there or in a folder above it.

    Raises:
        ConfigError: there is none, or it is malformed; the message names the file and the key.
    """
    start = Path(start).resolve()
    if not start.exists():
        raise ConfigError(f"{start}: there is no such folder")
    if (found := nearest_library(start)) is not None:
        return found
    raise ConfigError(
        f"no pyproject.toml with [tool.kernelmark] in {start if start.is_dir() else start.parent} or above it;"
        f" run this inside a project that has one, or write one: {_EXAMPLE}"
    )


def nearest_library(start: Path) -> LibraryConfig | None:
    """Read the configuration that is nearest to ``start``; ``None`` where there is none.

    Raises:
        ConfigError: it is malformed.
    """
    start = Path(start).resolve()
    files = (folder / "pyproject.toml" for folder in (start, *start.parents))
    return next((found for file in files if file.is_file() and (found := _read(file)) is not None), None)


def _read(file: Path) -> LibraryConfig | None:
    try:
        tool = tomllib.loads(file.read_text(encoding="utf-8")).get("tool")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not TOML: {error}") from error
    table = tool.get("kernelmark") if isinstance(tool, dict) else None
    if table is None:
        return None
    where = f"{file}: tool.kernelmark"
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: expected a table, got {table!r}; write {_EXAMPLE}")
    keys = [f.name for f in fields(LibraryConfig) if f.name != "root"]
    for key in table:
        if key not in keys:
            raise ConfigError(f"{where}.{key}: unknown key; {suggestion(key, keys, there_are='keys')}")
    for key in keys:
        if key not in table:
            raise ConfigError(f"{where}.{key}: missing; write {_EXAMPLE}")
        value = table[key]
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"{where}.{key}: expected text, got {value!r}")
        if key in ("ops", "cases") and not _MODULE.match(value):
            raise ConfigError(
                f"{where}.{key}: {value!r} is no module name; write it with dots, such as 'mylib.ops'"
            )
    folders: dict[str, Any] = {key: file.parent / table[key] for key in ("manifest", "benchmarks")}
    return LibraryConfig(root=file.parent, **{**table, **folders})


def import_foreign(name: str, error: Callable[[str], KernelmarkError]) -> ModuleType:
    """Import module ``name`` under :func:`importing`."""
    with importing(name, error):
        return importlib.import_module(name)


@contextmanager
def importing(name: str, error: Callable[[str], KernelmarkError]) -> Iterator[None]:
    """Tell what importing a library's module ``name`` raises as the library's, not as a bug here.

    Args:
        name: The module, as the manifest or the configuration names it.
        error: Makes the error that says what is wrong with that name.

    Raises:
        UnavailableError: the module is there, but something that it imports is not.
        KernelmarkError: what ``error`` makes, where there is no such module, or importing it raises; one
            that is raised inside passes unchanged.
    """
    try:
        yield
    except KernelmarkError:
        raise
    except ImportError as cause:
        if isinstance(cause, ModuleNotFoundError) and f"{name}.".startswith(f"{cause.name}."):
            raise error(f"there is no module {cause.name!r}") from cause
        raise UnavailableError(f"{name} cannot be imported here: {cause}; install what it needs") from cause
    except Exception as cause:
        raise error(f"importing {name} raised {type(cause).__name__}: {cause}") from cause


_TEMPLATES = Path(__file__).parent / "starter"
_NAME = "mylib"
_FILES = {
    "pyproject.toml": "pyproject.toml.txt",
    f"{_NAME}/__init__.py": "ops.py.txt",
    "manifest/rows.yaml": "rows.yaml",
    "benchmarks/cases/__init__.py": "",
    "benchmarks/cases/rows.py": "cases.py.txt",
    "benchmarks/bench_rows.py": "bench_rows.py.txt",
    ".gitignore": "gitignore.txt",
}
"""What is written, and from which template; Python ends in .txt there, since it is no module of this package."""


def write_library(folder: Path, name: str) -> tuple[Path, ...]:
    """Write a library called ``name`` into ``folder``: declared, registered, checked and benchmarked at once.

    Raises:
        UsageError: ``name`` is no name of a module, or a file is there already; nothing is written.
        RecordError: the folder cannot be written.
    """
    if not (name.isascii() and name.isidentifier() and name == name.lower()) or keyword.iskeyword(name):
        raise UsageError(
            f"{name!r} cannot be a module's name; give --name with lower-case letters, digits and _"
        )
    texts = {
        folder / target.replace(_NAME, name): (_TEMPLATES / template).read_text("utf-8").replace(_NAME, name)
        if template
        else ""
        for target, template in _FILES.items()
    }
    write_new(texts)
    return tuple(texts)
