"""Where the user's op library is: ``[tool.kernelmark]`` in the nearest ``pyproject.toml``.

Says what is written there; whether the modules import and the folders exist is for those who use them.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kernelmark.errors import ConfigError
from kernelmark.text.near import suggestion

__all__ = ["LibraryConfig", "find_library", "nearest_library"]

_FILE = "pyproject.toml"
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z", re.ASCII)
_EXAMPLE = (
    'name = "mylib", manifest = "manifest", ops = "mylib.ops", cases = "cases", benchmarks = "benchmarks"'
)


@dataclass(frozen=True, slots=True)
class LibraryConfig:
    """One op library.

    Attributes:
        root: The folder of the ``pyproject.toml``; the modules below are importable from there.
        name: What the library's own op is called in a report.
        manifest: The folder of the manifest.
        ops: The module that holds the op classes.
        cases: The package whose modules hold ``ENTRIES``.
        benchmarks: The folder of the ``bench_*.py`` files.
    """

    root: Path
    name: str
    manifest: Path
    ops: str
    cases: str
    benchmarks: Path


_FOLDERS = ("manifest", "benchmarks")
_MODULES = ("ops", "cases")
_KEYS = tuple(f.name for f in fields(LibraryConfig) if f.name != "root")


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
        f"no {_FILE} with [tool.kernelmark] in {start if start.is_dir() else start.parent} or above it;"
        f" run this inside a project that has one, or write one: {_EXAMPLE}"
    )


def nearest_library(start: Path) -> LibraryConfig | None:
    """Read the configuration that is nearest to ``start``; ``None`` where there is none.

    Raises:
        ConfigError: it is malformed.
    """
    start = Path(start).resolve()
    for candidate in (start, *start.parents):
        file = candidate / _FILE
        if file.is_file() and (table := _table(file)) is not None:
            return _config(file, table)
    return None


def _table(file: Path) -> dict[str, Any] | None:
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not TOML: {error}") from error
    tool = data.get("tool", {})
    table = tool.get("kernelmark") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise ConfigError(f"{file}: tool.kernelmark: expected a table, got {table!r}; write {_EXAMPLE}")
    return table


def _config(file: Path, table: dict[str, Any]) -> LibraryConfig:
    for key in table:
        if key not in _KEYS:
            hint = suggestion(key, _KEYS, there_are="keys")
            raise ConfigError(f"{file}: tool.kernelmark.{key}: unknown key; {hint}")
    values = {key: _value(file, table, key) for key in _KEYS}
    root = file.parent
    folders = {key: root / values[key] for key in _FOLDERS}
    return LibraryConfig(root=root, **{**values, **folders})  # pyright: ignore[reportArgumentType] - checked by key


def _value(file: Path, table: dict[str, Any], key: str) -> str:
    where = f"{file}: tool.kernelmark.{key}"
    if key not in table:
        raise ConfigError(f"{where}: missing; write {_EXAMPLE}")
    value = table[key]
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{where}: expected text, got {value!r}")
    if key in _MODULES and not _MODULE.match(value):
        raise ConfigError(f"{where}: {value!r} is no module name; write it with dots, such as 'mylib.ops'")
    return value
