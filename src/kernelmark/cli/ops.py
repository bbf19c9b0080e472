"""``kernelmark ops``: what a library's manifest declares, and whether library and manifest agree.

Parses, calls :mod:`kernelmark.manifest`, renders, and chooses the exit code; knows no rule of the manifest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmark.cli.console import as_json, echo_json
from kernelmark.cli.exit_codes import ExitCode
from kernelmark.errors import ConfigError
from kernelmark.manifest import LibraryConfig, OpSpec, WorkloadCall, find_library, load_manifest
from kernelmark.manifest.levels import Level, LevelResult, check_classes, check_files, import_ops
from kernelmark.manifest.library import importing, write_library
from kernelmark.manifest.op import TensorDecl

if TYPE_CHECKING:
    from kernelmark.manifest.levels.workloads import Workloads

__all__ = ["ops"]

_library = click.option(
    "--project",
    "library",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    callback=lambda _context, _option, folder: find_library(folder or Path.cwd()),
    help="Folder of the project; by default the nearest above with [tool.kernelmark] in its pyproject.toml.",
)


@click.group()
def ops() -> None:
    """List, show and validate the ops of a library's manifest."""


@ops.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", help="What the library is called; otherwise as FOLDER is.")
def init(folder: Path, name: str | None) -> None:
    """Write a library of one op into FOLDER, to start from: it validates, verifies and benchmarks as it is."""
    for path in write_library(folder, name or folder.resolve().name):
        click.echo(f"wrote {path}")
    click.echo("look at it with:")
    click.echo(f"  cd {folder} && kernelmark ops validate && python -m pytest")


@ops.command("list")
@_library
@as_json
def list_ops(library: LibraryConfig, as_json: bool) -> None:
    """List the ops with their families, numbers of calls and dtypes."""
    specs = load_manifest(library.manifest).ops.values()
    if as_json:
        echo_json([_summary(spec) for spec in specs])
        return
    rows = [("family", "op", "calls", "dtypes")]
    rows += [(spec.family, spec.name, str(len(list(spec.cases()))), _dtypes(spec)) for spec in specs]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


@ops.command()
@click.argument("op")
@_library
@as_json
def show(op: str, library: LibraryConfig, as_json: bool) -> None:
    """Show the signature, effects and calls of OP."""
    spec = load_manifest(library.manifest).op(op)
    with _importable(library):
        calls = [_call(call) for call in spec.calls()]
    if as_json:
        echo_json(_summary(spec) | {"signature": _signature(spec), "calls": calls})
    else:
        click.echo("\n".join(_description(spec, calls)))


@ops.command()
@click.option(
    "--level",
    "levels",
    multiple=True,
    type=click.Choice([level.value for level in Level if level is not Level.COVERAGE]),
    help="Run only this level; may be repeated. By default all of them are run.",
)
@click.option(
    "--coverage",
    type=click.Path(exists=True, path_type=Path),
    metavar="RUN",
    help="Say which cases the stored run RUN measured and which not; alone, no other level is run.",
)
@_library
@click.pass_context
def validate(
    context: click.Context, levels: Sequence[str], coverage: Path | None, library: LibraryConfig
) -> None:
    """Check the manifest, and the library against it.

    Exits with 1 if a level has an error. What a level could not check is told, and is no error.
    """
    schema = check_files(library.manifest)
    if schema.errors:
        _write_result(schema, library, err=True)
        context.exit(ExitCode.USAGE)
    asked = [Level(level) for level in levels] or ([] if coverage else list(Level))
    with _importable(library):
        results = [schema, *_run_levels(library, asked, coverage)]
    for result in results:
        _write_result(result, library)
    context.exit(ExitCode.FAILED if any(result.errors for result in results) else ExitCode.OK)


# --- running the levels -----------------------------------------------------------------------------


@contextmanager
def _importable(library: LibraryConfig) -> Iterator[None]:
    """Put the project's folder where Python looks for modules, as pytest does with its root."""
    sys.path.insert(0, str(library.root))
    try:
        yield
    finally:
        sys.path.remove(str(library.root))


def _run_levels(library: LibraryConfig, asked: Sequence[Level], run: Path | None) -> list[LevelResult]:
    """Run the levels that are asked for; and with a stored run, compare that with the manifest."""
    from kernelmark.manifest.levels import workloads
    from kernelmark.manifest.levels.benchmarks import check_benchmarks, check_coverage
    from kernelmark.records import read_run
    from kernelmark.report.notes import note_text

    manifest = load_manifest(library.manifest)
    built = cache(lambda: _workloads(library))
    table: dict[Level, Callable[[], LevelResult]] = {
        Level.SIGNATURE: lambda: check_classes(manifest, import_ops(library.ops)),
        Level.WORKLOAD: lambda: workloads.check_workloads(manifest, built()),
        Level.SHAPE: lambda: workloads.check_shapes(manifest, built()),
        Level.DTYPE: lambda: workloads.check_dtypes(manifest, built()),
        Level.BENCH: lambda: check_benchmarks(manifest, library),
    }
    results = [check() for level, check in table.items() if level in asked]
    return results if run is None else [*results, check_coverage(manifest, read_run(run), note_text)]


def _workloads(library: LibraryConfig) -> Workloads:
    from kernelmark.harness.library import library_at
    from kernelmark.manifest.levels.workloads import Workloads
    from kernelmark.verify import require_reference

    with importing(library.cases, lambda what: ConfigError(f"[tool.kernelmark] cases: {what}")):
        entries = library_at(library.root).entries
    return Workloads(
        {op: (entry.build, entry.inputs) for op, entry in entries.items()},
        library.cases,
        library.root,
        lambda workload: require_reference(workload.verification(), getattr(workload, "reference", None)),
    )


# --- rendering ------------------------------------------------------------------------------------


def _write_result(result: LevelResult, library: LibraryConfig, *, err: bool = False) -> None:
    """Write one line for the level, then one for each finding: errors before notes."""
    outcome = "ok" if result.checked or not result.findings else "not checked"
    outcome = f"errors: {len(result.errors)}" if result.errors else outcome
    notes = f", notes: {len(result.notes)}" if result.notes else ""
    click.echo(f"{result.level:<10} {outcome:<11} {result.what}: {result.checked}{notes}", err=err)
    for finding in (*result.errors, *result.notes):
        mark = "note: " if finding.is_note else ""
        where = finding.where.removeprefix(f"{library.root}/")
        click.echo(f"  {where}: {mark}{finding.message}", err=err)


def _dtypes(spec: OpSpec) -> str:
    return "; ".join(f"{name}: {', '.join(allowed)}" for name, allowed in spec.dtypes.items())


def _summary(spec: OpSpec) -> dict[str, Any]:
    return {
        "op": spec.name,
        "family": spec.family,
        "summary": spec.summary,
        "file": spec.place.path,
        "line": spec.place.line,
        "calls": len(list(spec.cases())),
        "dtypes": {name: list(allowed) for name, allowed in spec.dtypes.items()},
    }


def _signature(spec: OpSpec) -> dict[str, Any]:
    def tensors(decls: Sequence[TensorDecl]) -> list[dict[str, Any]]:
        return [
            {"name": d.name, "dtype": d.dtype, "shape": [e.text for e in d.shape], "optional": d.optional}
            for d in decls
        ]

    roofline = spec.roofline
    formulas = {
        name: value and value.text for name, value in (("flops", roofline.flops), ("bytes", roofline.bytes))
    }
    counted = formulas | {"compute": roofline.compute, "function": roofline.function}
    return {
        "inputs": tensors(spec.inputs),
        "outputs": tensors(spec.outputs),
        "params": {
            p.name: {"type": p.type, "default": p.default, "choices": list(p.choices)} for p in spec.params
        },
        "arguments": {name: expression.text for name, expression in spec.arguments.items()},
        "effects": {
            "mutates": list(spec.effects.mutates),
            "writes": list(spec.effects.writes),
            "aliases": dict(spec.effects.aliases),
        },
        "roofline": {name: value for name, value in counted.items() if value},
    }


def _call(call: WorkloadCall) -> dict[str, Any]:
    return {
        **{name: getattr(call, name) for name in ("id", "label", "source", "dtypes", "dims", "params")},
        "inputs": {
            name: str(call.tensors[name]) if name in call.tensors else None for name in call.signature
        },
        "outputs": {name: str(tensor) for name, tensor in call.outputs.items()},
        "arguments": call.arguments,
        **call.roofline()._asdict(),
    }


def _description(spec: OpSpec, calls: Sequence[dict[str, Any]]) -> Iterator[str]:
    signature = _signature(spec)
    yield f"{spec.name} ({spec.family})"
    yield spec.summary
    yield f"declared  {spec.place.path}:{spec.place.line}"
    yield f"dtypes    {_dtypes(spec) or 'none'}"
    for kind in ("inputs", "outputs"):
        for tensor in signature[kind]:
            optional = ", optional" if tensor["optional"] else ""
            shape = ", ".join(tensor["shape"])
            yield f"{kind:<9} {tensor['name']}: {tensor['dtype']}[{shape}]{optional}"
    for name, param in signature["params"].items():
        told = "given by each row" if param["default"] is None else f"default {json.dumps(param['default'])}"
        choices = f", one of {', '.join(map(json.dumps, param['choices']))}" if param["choices"] else ""
        yield f"params    {name}: {param['type']}, {told}{choices}"
    for kind in ("arguments", "effects", "roofline"):
        entries = (f"{name} = {_shown(value)}" for name, value in signature[kind].items() if value)
        yield f"{kind:<9} {_listed(entries)}"
    for call in calls:
        yield from ("", call["id"], f"  source  {call['source']}")
        for kind in ("inputs", "outputs"):
            tensors = (f"{name} {tensor or 'not given'}" for name, tensor in call[kind].items())
            yield f"  {kind:<7} {_listed(tensors)}"
        if call["params"]:
            params = (f"{name} = {json.dumps(value)}" for name, value in call["params"].items())
            yield f"  params  {_listed(params)}"
        yield f"  work    {call['flops']:,} operations in {call['compute']}, {call['bytes']:,} bytes"


def _listed(entries: Iterable[str]) -> str:
    return "; ".join(entries) or "none"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} of {target}" for name, target in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)
