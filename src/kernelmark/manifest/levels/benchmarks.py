"""Levels ``bench`` and ``coverage``: which ops the benchmark files measure, and which cases a stored run measured.

A benchmark file calls ``bench.cases`` and ``bench.Runner``, and every op has one. Reads the text of the files; nothing
of theirs is imported.
"""

from __future__ import annotations

import ast
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kernelmark.manifest.levels import Finding, Level, LevelResult, Severity
from kernelmark.manifest.levels.bindings import UNKNOWN, FoundCall, calls_in
from kernelmark.manifest.library import LibraryConfig
from kernelmark.manifest.op import Manifest
from kernelmark.records import Note, Row, StoredRun
from kernelmark.text import suggestion

__all__ = ["check_benchmarks", "check_coverage"]

_REQUIRED = ("cases", "Runner")
_NOT_BENCHMARKS = ("conftest.py", "__init__.py")


def check_benchmarks(manifest: Manifest, library: LibraryConfig) -> LevelResult:
    """Look at every ``bench_*.py`` below the benchmarks folder, then for the ops that none of them names."""
    folder = library.benchmarks
    files = sorted(folder.rglob("bench_*.py")) if folder.is_dir() else []
    if not files:
        what = "no bench_*.py in it" if folder.is_dir() else "no such folder"
        return LevelResult(
            Level.BENCH, 0, "files", (_finding(str(folder), f"{what}; nothing is benchmarked"),)
        )
    entries = library.root.joinpath(*library.cases.split("."))
    others = sorted(path for path in folder.rglob("*.py") if not path.is_relative_to(entries))
    findings = [_unread(path) for path in others if _is_unread(path)]
    named: set[str] = set()
    for path in files:
        read = _File(path, library)
        findings += read.findings(manifest)
        named |= read.ops
    for spec in manifest.ops.values():
        if spec.name not in named:
            message = f"no file below {folder} calls bench.cases({spec.name}), so this op is never measured"
            findings.append(_finding(str(spec.place), message))
    return LevelResult(Level.BENCH, len(files), "files", tuple(findings))


@dataclass(slots=True)
class _File:
    """One benchmark file, and the ops whose cases it asks for."""

    path: Path
    library: LibraryConfig
    ops: set[str] = field(default_factory=set)

    def findings(self, manifest: Manifest) -> Iterator[Finding]:
        tree = _parse(self.path)
        if isinstance(tree, Finding):
            yield tree
            return
        called: set[str] = set()
        for call in calls_in(tree, self._package()):
            name = self._api_name(call)
            if name is not None:
                called.add(name)
            if name == "cases":
                yield from self._note_ops(call, manifest)
        missing = [f"bench.{name}" for name in _REQUIRED if name not in called]
        if missing:
            yield _finding(
                f"{self.path}:1", f"never calls {' or '.join(missing)}; a benchmark file calls both"
            )

    def _api_name(self, call: FoundCall) -> str | None:
        """Say which of the public functions is called, if all that the callee may stand for is that one."""
        found = {self._public(dotted) for dotted in call.callee}
        return found.pop() if len(found) == 1 else None

    def _public(self, dotted: str) -> str | None:
        module, _, name = dotted.rpartition(".")
        ours = module == "kernelmark" or module.startswith("kernelmark.") or module in self._facades()
        return name if ours and name in _REQUIRED else None

    def _note_ops(self, call: FoundCall, manifest: Manifest) -> Iterator[Finding]:
        where = f"{self.path}:{call.node.lineno}"
        arguments = [*call.node.args, *(keyword.value for keyword in call.node.keywords)]
        for dotted in call.scope.names(arguments[0]) if arguments else {UNKNOWN}:
            name = dotted.rpartition(".")[2]
            if dotted == UNKNOWN:
                message = (
                    "cannot tell which op's cases are asked for here; name the class, or loop over a literal"
                )
                yield Finding(Level.BENCH, where, message, Severity.NOTE)
            elif name not in manifest.ops:
                hint = suggestion(name, manifest.ops, there_are="ops")
                yield _finding(
                    where, f"asks for the cases of {name!r}, which the manifest does not have; {hint}"
                )
            else:
                self.ops.add(name)

    def _facades(self) -> set[str]:
        """Name the modules of the public interface: ``api``, in the benchmarks folder or beside it."""
        folder = _dotted(self.library.benchmarks, self.library.root)
        return {f"{folder}.api", ".".join([*folder.split(".")[:-1], "api"])}

    def _package(self) -> str:
        return _dotted(self.path.parent, self.library.root)


def _dotted(folder: Path, root: Path) -> str:
    relative = folder.relative_to(root) if folder.is_relative_to(root) else Path(folder.name)
    return ".".join(relative.parts)


def _parse(path: Path) -> ast.Module | Finding:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning about the user's code is not this level's business
            return ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        return _finding(f"{path}:{error.lineno or 1}", f"syntax error: {error.msg}")
    except (ValueError, RecursionError) as error:
        return _finding(f"{path}:1", f"cannot be parsed: {error}")
    except OSError as error:
        return _finding(str(path), f"cannot be read: {error.strerror}")


def _is_unread(path: Path) -> bool:
    return not path.name.startswith(("bench_", "_")) and path.name not in _NOT_BENCHMARKS


def _unread(path: Path) -> Finding:
    message = "not checked: only bench_*.py are benchmark files; rename it, or start its name with _"
    return Finding(Level.BENCH, str(path), message, Severity.NOTE)


def _finding(where: str, message: str) -> Finding:
    return Finding(Level.BENCH, where, message)


def check_coverage(manifest: Manifest, run: StoredRun, tell: Callable[[Note | None], str]) -> LevelResult:
    """Compare the manifest's cases with the run's rows; a case is measured if a row of it has a time.

    ``tell`` writes a row's note for people.
    """
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in run.rows:
        rows[row.case].append(row)
    findings: list[Finding] = []
    measured = 0
    known: set[str] = set()
    for spec in manifest.ops.values():
        for row, case in spec.cases():
            name = spec.call_id(row, case)
            known.add(name)
            if any(r.timing is not None for r in rows.get(name, ())):
                measured += 1
            else:
                reason = _why_not(rows.get(name, []), run, tell)
                findings.append(Finding(Level.COVERAGE, f"{row.place}: {name}", f"not measured: {reason}"))
    for name, found in rows.items():
        if name not in known and found[0].op is not None:
            message = f"{run.path} measured case {name} of {found[0].op}, which this manifest does not have"
            findings.append(Finding(Level.COVERAGE, str(manifest.folder), message, Severity.NOTE))
    return LevelResult(Level.COVERAGE, measured, "cases measured", tuple(findings))


def _why_not(rows: list[Row], run: StoredRun, tell: Callable[[Note | None], str]) -> str:
    if not rows:
        return "the run has no row of it"
    if run.header.protocol.verify_only:
        return "the run only checked, it did not time"
    return "; ".join(f"{row.implementation} {row.check.value}: {tell(row.note)}" for row in rows)
