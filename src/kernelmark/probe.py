"""Whether an optional thing is usable here, as a value: ``Probe(ok, detail)``.

Only the two narrow causes, a missing module and a missing program, become a "no". Anything else that
goes wrong while a library is imported is a broken installation, and its own error propagates.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from dataclasses import dataclass
from types import ModuleType

from kernelmark.errors import UnavailableError

__all__ = ["Probe", "module", "program", "require_module"]


@dataclass(frozen=True, slots=True)
class Probe:
    """``ok``, and either what was found or why not, with the fix."""

    ok: bool
    detail: str

    def __bool__(self) -> bool:
        return self.ok


def module(name: str, *, extra: str | None = None) -> Probe:
    """Say whether module ``name`` can be found, without importing it.

    Args:
        name: Dotted module name; the parents of a dotted name are imported, as ``importlib`` must.
        extra: The extra of this package that installs it, for the message.
    """
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        found = None
    if found is not None:
        return Probe(True, f"{name} is installed")
    fix = f"pip install 'kernelmark[{extra}]'" if extra else f"install {name}"
    return Probe(False, f"{name} is not installed ({fix})")


def require_module(name: str, *, extra: str | None = None) -> ModuleType:
    """Import ``name``.

    Raises:
        UnavailableError: it is not installed; the message says what to install.
    """
    found = module(name, extra=extra)
    if not found:
        raise UnavailableError(found.detail)
    return importlib.import_module(name)


def program(name: str, *, fix: str) -> Probe:
    """Say whether program ``name`` is on the PATH."""
    path = shutil.which(name)
    return Probe(True, path) if path else Probe(False, f"{name} is not on the PATH ({fix})")
