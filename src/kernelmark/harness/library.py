"""An op library: its manifest, its op classes and its case registry, found through ``[tool.kernelmark]``."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from kernelmark.errors import ConfigError, EntryError
from kernelmark.harness.case import Case
from kernelmark.manifest import LibraryConfig, Manifest, WorkloadCall, find_library, load_manifest
from kernelmark.manifest.library import nearest_library

__all__ = ["Entry", "Library", "cases", "library_at"]


@dataclass(frozen=True, slots=True)
class Entry:
    """How a manifest call of one op becomes a case.

    Args:
        build: Makes the workload from a manifest call.
        inputs: Makes the call-time inputs from the workload, in place of its ``gen_inputs()``; for an op that
            needs others, as a backward op needs what a forward pass saved.
        count_copies: Whether device-to-device copies inside ``run`` are part of the op, for every
            implementation of the case alike.
        binder: ``binder(op, case)`` gives the ``Implementation`` that calls the op, where calling it with
            ``case.inputs`` is not right.
    """

    build: Callable[[WorkloadCall], Any]
    inputs: Callable[[Any], Any] | None = None
    count_copies: bool = False
    binder: Callable[[Any, Case], Any] | None = None


@dataclass(slots=True)
class Library:
    """One op library, with its manifest read and its registry imported once."""

    config: LibraryConfig
    manifest: Manifest
    entries: Mapping[str, Entry]
    op_classes: dict[str, type] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the library's own op is called in a report."""
        return self.config.name

    def op_class(self, name: str) -> type:
        """Give the class of op ``name``.

        Raises:
            ConfigError: the library's module of ops has no such class.
        """
        if name not in self.op_classes:
            module = _import(self.config, self.config.ops, "ops")
            found = getattr(module, name, None)
            if not isinstance(found, type):
                raise ConfigError(
                    f"the manifest names op {name!r}, but {self.config.ops} has no class of that name"
                )
            self.op_classes[name] = found
        return self.op_classes[name]

    def cases(self, op: type) -> list[Case]:
        """Make the cases of ``op``: one for each dtype case of each manifest row, in manifest order.

        Raises:
            EntryError: the op has no entry.
            ManifestError: the manifest has no such op.
        """
        name = op.__name__ if isinstance(op, type) else str(op)
        spec = self.manifest.op(name)
        entry = self.entries.get(name)
        if entry is None:
            near = get_close_matches(name, self.entries, n=3)
            hint = f"; near names there: {', '.join(near)}" if near else ""
            raise EntryError(
                f"op {name} has no entry in {self.config.cases} ({self._cases_folder()}):"
                f" add {name!r}: Entry(...) to the ENTRIES of its family's module{hint}"
            )
        return [self._case(call, entry, op) for call in spec.calls()]

    def _case(self, call: WorkloadCall, entry: Entry, op: type) -> Case:
        return Case(
            call.id,
            partial(entry.build, call),  # no lambda: a case may have to go to another process
            op=call.op,
            op_class=op,
            library_name=self.name,
            arguments=call.arguments,
            params=call.tensor_params(),
            inputs=entry.inputs,
            count_copies=entry.count_copies,
            binder=entry.binder,
            declared=call,
            home=self.config.root,
        )

    def _cases_folder(self) -> str:
        return str(self.config.root / self.config.cases.replace(".", "/"))


def cases(op: type) -> list[Case]:
    """List the cases of a manifest op: one for each dtype case of each workload row, in manifest order.

    No tensor is made and no device is opened, so that pytest can collect anywhere. The library is the one that the
    file of ``op`` lies in, else that of the file that calls this, else that of the working folder.

    Raises:
        ConfigError: there is no ``[tool.kernelmark]``, or it names what is not there.
        EntryError: the op has no entry in the case registry.
        ManifestError: the manifest is malformed, or does not have the op.
    """
    module = sys.modules.get(getattr(op, "__module__", ""))
    files = (getattr(module, "__file__", None), sys._getframe(1).f_code.co_filename)
    for file in files:
        found = nearest_library(Path(file)) if file else None
        if found is not None:
            return _load(found).cases(op)
    return library_at(Path.cwd()).cases(op)


def library_at(folder: Path) -> Library:
    """Give the library that ``folder`` belongs to, read once for each place."""
    return _load(find_library(folder))


@lru_cache(maxsize=8)
def _load(config: LibraryConfig) -> Library:
    manifest = load_manifest(config.manifest)
    return Library(config, manifest, _read_entries(config, manifest))


def _read_entries(config: LibraryConfig, manifest: Manifest) -> dict[str, Entry]:
    package = _import(config, config.cases, "cases")
    modules = [package]
    for info in pkgutil.iter_modules(getattr(package, "__path__", ())):
        modules.append(importlib.import_module(f"{config.cases}.{info.name}"))
    entries: dict[str, Entry] = {}
    owner: dict[str, str] = {}
    for module in modules:
        for name, entry in getattr(module, "ENTRIES", {}).items():
            if name in owner:
                raise EntryError(f"op {name} is registered twice: in {owner[name]} and in {module.__name__}")
            if not isinstance(entry, Entry):
                raise EntryError(f"{module.__name__}: ENTRIES[{name!r}] must be an Entry, got {entry!r}")
            if name not in manifest.ops:
                near = get_close_matches(name, manifest.ops, n=3)
                hint = f"; near names: {', '.join(near)}" if near else ""
                raise EntryError(
                    f"{module.__name__}: ENTRIES names {name!r}, which the manifest does not have{hint}"
                )
            entries[name], owner[name] = entry, module.__name__
    return entries


def _import(config: LibraryConfig, name: str, key: str) -> Any:
    root = str(config.root)
    if root not in sys.path:
        sys.path.insert(0, root)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise ConfigError(
            f"[tool.kernelmark] {key} = {name!r} in {root}/pyproject.toml: no such module; "
            "name an importable module, relative to that folder or installed"
        ) from error
