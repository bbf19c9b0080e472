"""The Python function that a transform step names: found, and its parameters compared with what it is given."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernelmark.harness.loading import load_module
from kernelmark.text import suggestion

__all__ = ["check_call", "find_function"]

_GIVEN = ("module", "target")
"""What every transform gets besides its options: the module by position, the target by name."""


def find_function(text: str) -> Callable[..., Any]:
    """Give the function that ``module:function`` or ``/path/file.py:function`` names.

    Raises:
        ValueError: there is none; the message says what was found.
    """
    where, _, name = text.rpartition(":")
    module = _module(where)
    function = getattr(module, name, None)
    if function is None:
        known = [key for key, value in vars(module).items() if _is_transform(key, value)]
        raise ValueError(
            f"{where} has no function {name!r}; {suggestion(name, known, there_are='transforms there')}"
        )
    if not callable(function):
        raise ValueError(f"{text} is {function!r:.60}, which is no function")  # noqa: TRY004 - of the file
    return function


def check_call(text: str, function: Callable[..., Any], options: Mapping[str, object]) -> None:
    """Refuse options that the function does not take, and the lack of those that it needs.

    Raises:
        ValueError: they do not fit; the message says which.
    """
    parameters = inspect.signature(function).parameters
    positional = next(iter(parameters.values()), None)
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    if positional is None or positional.kind is inspect.Parameter.KEYWORD_ONLY:
        raise ValueError(f"{text} takes no module; a transform is function(module, *, target, ...)")
    if "target" not in parameters and not takes_any:
        raise ValueError(f"{text} takes no 'target'; a transform is function(module, *, target, ...)")
    own = [name for name in parameters if name not in (positional.name, *_GIVEN)]
    for name in options:
        if name in _GIVEN or (name not in own and not takes_any):
            raise ValueError(
                f"{text} has no parameter {name!r}; {suggestion(name, own, there_are='its parameters')}"
            )
    missing = [
        name
        for name in own
        if name not in options
        and parameters[name].default is inspect.Parameter.empty
        and parameters[name].kind is not inspect.Parameter.VAR_KEYWORD
    ]
    if missing:
        raise ValueError(f"{text} needs {', '.join(missing)}; give {missing[0]} under 'options'")


def _module(where: str) -> Any:
    if where.endswith(".py"):
        path = Path(where)
        if not path.is_file():
            raise ValueError(f"there is no file {where}")
        return _file_module(path, path.stat().st_mtime_ns)
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        # its own absence is the descriptor's mistake, that of something it imports is not
        if error.name is not None and (where == error.name or where.startswith(f"{error.name}.")):
            raise ValueError(f"there is no module {where!r} (looked for {error.name!r})") from None
        raise


@lru_cache(maxsize=64)
def _file_module(path: Path, _changed_ns: int) -> Any:
    """Import a user's file once for each state of it."""
    return load_module(path)


def _is_transform(name: str, value: object) -> bool:
    if name.startswith("_") or not inspect.isfunction(value):
        return False
    return "target" in inspect.signature(value).parameters
