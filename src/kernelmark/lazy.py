"""Packages whose public names load when first used, so that importing one brings in nothing.

A package lists its names in ``__all__`` and says where they live once, as imports below ``if TYPE_CHECKING:``;
type checkers follow them, and so does :func:`lazy`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["lazy"]


def lazy(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the ``__getattr__`` and the ``__dir__`` of a package whose names are imported when first used.

    Args:
        package: Its ``__name__``. Its ``__all__`` must be set, and its imports below ``if TYPE_CHECKING:`` be absolute.
    """

    def getattr_(name: str) -> Any:
        module = sys.modules[package]
        home = _homes(package).get(name)
        if home is None:
            there_are = ", ".join(module.__all__)
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {there_are}")
        value = getattr(import_module(home), name)
        setattr(module, name, value)
        return value

    def dir_() -> list[str]:
        return sorted({*vars(sys.modules[package]), *sys.modules[package].__all__})

    return getattr_, dir_


@cache
def _homes(package: str) -> dict[str, str]:
    """Read from the package's own source which module each name comes from."""
    file = sys.modules[package].__file__ or ""
    try:  # by the file: not every loader gives the source, and that of pytest, which rewrites plugins, does not
        source = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise ImportError(
            f"{package}: its source ({file}) is not here, and says where its names live; install it anew"
        ) from error
    homes: dict[str, str] = {}
    for block in ast.parse(source).body:
        match block:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body):
                imports = (each for each in body if isinstance(each, ast.ImportFrom) and each.module)
                homes |= {alias.name: str(each.module) for each in imports for alias in each.names}
    return homes
