"""Importing the library's own modules; what goes wrong there is told as the library's, not as a bug here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

from kernelmark.errors import KernelmarkError, UnavailableError

__all__ = ["import_foreign", "importing"]


def import_foreign(name: str, error: Callable[[str], KernelmarkError]) -> ModuleType:
    """Import module ``name`` under :func:`importing`."""
    with importing(name, error):
        return importlib.import_module(name)


@contextmanager
def importing(name: str, error: Callable[[str], KernelmarkError]) -> Iterator[None]:
    """Translate what importing module ``name`` raises.

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
        named = cause.name or ""
        if isinstance(cause, ModuleNotFoundError) and f"{name}.".startswith(f"{named}."):
            raise error(f"there is no module {named!r}") from cause
        raise UnavailableError(f"{name} cannot be imported here: {cause}; install what it needs") from cause
    except Exception as cause:
        raise error(f"importing {name} raised {type(cause).__name__}: {cause}") from cause
