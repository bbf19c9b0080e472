"""Imports a user's Python file as a module of its own, as often as asked, each time afresh."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType

from kernelmark.errors import UsageError

__all__ = ["forget_modules", "load_module"]

_PREFIX = "kernelmark_file_"
_numbers = itertools.count(1)


def load_module(path: Path) -> ModuleType:
    """Import the file ``path`` under a name that no other import has; its folder can be imported from.

    Raises:
        UsageError: it is no file that Python imports.
        BaseException: whatever the file raises, unchanged.
    """
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    name = f"{_PREFIX}{next(_numbers)}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no file that Python imports; it must end in .py")
    module = importlib.util.module_from_spec(spec)
    # dataclasses, pickle and Triton look a module up by its name
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def forget_modules() -> None:
    """Let go of every module that was loaded here, and with it of the tensors that it holds."""
    for name in [each for each in sys.modules if each.startswith(_PREFIX)]:
        del sys.modules[name]
