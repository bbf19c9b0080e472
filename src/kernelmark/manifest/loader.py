"""A manifest folder as a :class:`Manifest`: files in order of their names, clashes between them found."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from kernelmark.errors import ManifestError
from kernelmark.files.source import Place, Source, read_source
from kernelmark.manifest.declare import declare
from kernelmark.manifest.schema import read_schema
from kernelmark.manifest.spec import Manifest, OpSpec

__all__ = ["load_manifest", "read_manifest"]

_SUFFIXES = (".yaml", ".yml")
_SHOWN = 20  # more errors than that are one error with many victims


def load_manifest(folder: Path | str) -> Manifest:
    """Read every YAML file of ``folder``.

    Raises:
        ManifestError: something is wrong; the place is the first problem's, the text lists the others.
    """
    manifest, problems = read_manifest(folder)
    if not problems:
        return manifest
    first, others = problems[0], problems[1:]
    if not others:
        raise first
    lines = [str(problem) for problem in others[:_SHOWN]]
    if len(others) > _SHOWN:
        lines.append(f"and {len(others) - _SHOWN} more")
    message = "\n".join([first.message, *lines])
    raise ManifestError(message, path=first.path, line=first.line, field=first.field)


def read_manifest(folder: Path | str) -> tuple[Manifest, list[ManifestError]]:
    """Read every YAML file of ``folder``; give the manifest and everything that is wrong with it.

    With a problem the manifest holds the ops of the files that have none.
    """
    folder = Path(folder)
    try:
        files = _files(folder)
    except ManifestError as error:
        return Manifest(folder, MappingProxyType({}), ()), [error]
    problems: list[ManifestError] = []
    ops: dict[str, OpSpec] = {}
    families: dict[str, Place] = {}
    for file in files:
        specs, source, family, found = _read_file(file)
        if source is not None:
            found += _clashes(source, family, specs, families, ops)
            families.setdefault(family, source.place(("family",)))
        problems += found
        if not found:
            ops |= {spec.name: spec for spec in specs}
    return Manifest(folder, MappingProxyType(ops), tuple(files)), problems


def _files(folder: Path) -> list[Path]:
    if not folder.exists():
        raise ManifestError("there is no such folder; name the folder of the manifest", path=str(folder))
    if not folder.is_dir():
        raise ManifestError(
            "this is a file; name the folder that holds the manifest's files", path=str(folder)
        )
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise ManifestError(f"cannot be listed: {error.strerror}", path=str(folder)) from error
    files = [entry for entry in entries if entry.suffix in _SUFFIXES and not entry.name.startswith(".")]
    if not files:
        raise ManifestError("the folder holds no .yaml file; a manifest has one per family", path=str(folder))
    return files


def _read_file(file: Path) -> tuple[list[OpSpec], Source | None, str, list[ManifestError]]:
    try:
        source = read_source(file)
    except ManifestError as error:
        return [], None, "", [error]
    model, problems = read_schema(source)
    if model is None:
        return [], None, "", problems
    specs: list[OpSpec] = []
    for name, op in model.ops.items():
        spec, found = declare(source, model.family, name, op)
        specs.append(spec)
        problems += found
    return specs, source, model.family, problems


def _clashes(
    source: Source, family: str, specs: list[OpSpec], families: dict[str, Place], ops: dict[str, OpSpec]
) -> list[ManifestError]:
    found: list[ManifestError] = []
    if family in families:
        other = families[family]
        message = f"family {family!r} is already declared in {other.path}:{other.line}; one file per family"
        found.append(source.error(message, "family"))
    for spec in specs:
        if spec.name in ops:
            other = ops[spec.name].place
            message = (
                f"op {spec.name!r} is already declared in {other.path}:{other.line}; an op has one place"
            )
            found.append(spec.place.error(message))
    return found
