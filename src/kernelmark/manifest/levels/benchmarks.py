"""Levels ``bench`` and ``coverage``: which ops the benchmark files measure, and which cases a stored run measured.

A benchmark file calls ``bench.cases`` and ``bench.Runner``, and every op has one. Reads the text of the files; nothing
of theirs is imported.
"""

from __future__ import annotations

import ast
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from kernelmark.manifest.levels import Finding, Level, LevelResult
from kernelmark.manifest.levels.bindings import UNKNOWN, Scope, calls_in
from kernelmark.manifest.library import LibraryConfig
from kernelmark.manifest.op import Manifest
from kernelmark.records import Note, Row, StoredRun
from kernelmark.text import suggestion

__all__ = ["check_benchmarks", "check_coverage"]

_REQUIRED = ("cases", "Runner")
_UNREAD = "not checked: only bench_*.py are benchmark files; rename it, or start its name with _"


def check_benchmarks(manifest: Manifest, library: LibraryConfig) -> LevelResult:
    """Look at every ``bench_*.py`` below the benchmarks folder, then for the ops that none of them names."""
    folder = library.benchmarks
    files = sorted(folder.rglob("bench_*.py")) if folder.is_dir() else []
    if not files:
        what = "no bench_*.py in it" if folder.is_dir() else "no such folder"
        return LevelResult(
            Level.BENCH, 0, "files", (Finding(str(folder), f"{what}; nothing is benchmarked"),)
        )
    entries = library.root.joinpath(*library.cases.split("."))
    findings = [
        Finding(str(path), _UNREAD, is_note=True)
        for path in sorted(folder.rglob("*.py"))
        if not path.name.startswith(("bench_", "_"))
        and not (path.name == "conftest.py" or path.is_relative_to(entries))
    ]
    named: set[str] = set()
    for path in files:
        findings += _file(path, library, manifest, named)
    for spec in manifest.ops.values():
        if spec.name not in named:
            message = f"no file below {folder} calls bench.cases({spec.name}), so this op is never measured"
            findings.append(Finding(str(spec.place), message))
    return LevelResult(Level.BENCH, len(files), "files", tuple(findings))


def _file(path: Path, library: LibraryConfig, manifest: Manifest, named: set[str]) -> Iterator[Finding]:
    """Read one benchmark file, and add the ops whose cases it asks for to the ``named``."""
    tree = _parse(path)
    if isinstance(tree, Finding):
        yield tree
        return
    folder = _dotted(library.benchmarks, library.root)
    # the public interface is ``api``, in the benchmarks folder or beside it
    facades = {f"{folder}.api", ".".join([*folder.split(".")[:-1], "api"])}

    def public(dotted: str) -> str | None:
        module, _, name = dotted.rpartition(".")
        ours = f"{module}.".startswith("kernelmark.") or module in facades
        return name if ours and name in _REQUIRED else None

    called: set[str | None] = set()
    for call, scope in calls_in(tree, _dotted(path.parent, library.root)):
        found = {public(dotted) for dotted in scope.names(call.func)}
        if len(found) == 1:  # all that the callee may stand for is that one
            called |= found
            if found == {"cases"}:
                yield from _ops(path, call, scope, manifest, named)
    missing = [f"bench.{name}" for name in _REQUIRED if name not in called]
    if missing:
        yield Finding(f"{path}:1", f"never calls {' or '.join(missing)}; a benchmark file calls both")


def _ops(path: Path, call: ast.Call, scope: Scope, manifest: Manifest, named: set[str]) -> Iterator[Finding]:
    where = f"{path}:{call.lineno}"
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    for dotted in scope.names(arguments[0]) if arguments else {UNKNOWN}:
        name = dotted.rpartition(".")[2]
        if dotted == UNKNOWN:
            told = "cannot tell which op's cases are asked for here; name the class, or loop over a literal"
            yield Finding(where, told, is_note=True)
        elif name not in manifest.ops:
            hint = suggestion(name, manifest.ops, there_are="ops")
            yield Finding(where, f"asks for the cases of {name!r}, which the manifest does not have; {hint}")
        else:
            named.add(name)


def _dotted(folder: Path, root: Path) -> str:
    relative = folder.relative_to(root) if folder.is_relative_to(root) else Path(folder.name)
    return ".".join(relative.parts)


def _parse(path: Path) -> ast.Module | Finding:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning about the user's code is not this level's business
            return ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        return Finding(f"{path}:{error.lineno or 1}", f"syntax error: {error.msg}")
    except (ValueError, RecursionError) as error:
        return Finding(f"{path}:1", f"cannot be parsed: {error}")
    except OSError as error:
        return Finding(str(path), f"cannot be read: {error.strerror}")


def check_coverage(manifest: Manifest, run: StoredRun, tell: Callable[[Note | None], str]) -> LevelResult:
    """Compare the manifest's cases with the run's rows; a case is measured if a row of it has a time.

    ``tell`` writes a row's note for people.
    """
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in run.rows:
        rows[row.case].append(row)
    findings: list[Finding] = []
    measured = 0
    for spec in manifest.ops.values():
        for row, case in spec.cases():
            name = spec.call_id(row, case)
            found = rows.pop(name, [])
            if any(each.timing is not None for each in found):
                measured += 1
                continue
            reason = "; ".join(f"{r.implementation} {r.check.value}: {tell(r.note)}" for r in found)
            if not found:
                reason = "the run has no row of it"
            elif run.header.protocol.verify_only:
                reason = "the run only checked, it did not time"
            findings.append(Finding(f"{row.place}: {name}", f"not measured: {reason}"))
    for name, (first, *_) in rows.items():
        if first.op is not None:
            message = f"{run.path} measured case {name} of {first.op}, which this manifest does not have"
            findings.append(Finding(str(manifest.folder), message, is_note=True))
    return LevelResult(Level.COVERAGE, measured, "cases measured", tuple(findings))
