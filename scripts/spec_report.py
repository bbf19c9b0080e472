"""List the lines of the specification and the tests that name them.

``python scripts/spec_report.py`` prints each line with its tests; ``--require T`` makes the exit code 1 if a
line of group T has none. The markers are read from the tests' source, so nothing is imported or run, and a
line whose tests all need a GPU is shown as such.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
LINES = TESTS / "spec" / "lines.yaml"


@dataclass(frozen=True, slots=True)
class Group:
    """One way in: its letter, its name, and its lines as ``{id: title}``."""

    letter: str
    name: str
    lines: dict[str, str]


@dataclass(frozen=True, slots=True)
class Mention:
    """One place where a test names a line."""

    line: str
    path: Path
    row: int
    test: str
    gpu: bool


def load_groups(path: Path = LINES) -> tuple[Group, ...]:
    """Read the lines of the specification."""
    groups = tuple(
        Group(entry["group"], entry["name"], entry["lines"]) for entry in yaml.safe_load(path.read_text())
    )
    for group in groups:
        wanted = [f"{group.letter}{number}" for number in range(1, len(group.lines) + 1)]
        if list(group.lines) != wanted:
            raise ValueError(f"{path}: lines of group {group.letter} must be {wanted[0]} to {wanted[-1]}")
    return groups


def find_mentions(folder: Path = TESTS) -> list[Mention]:
    """Read every ``pytest.mark.spec(...)`` below ``folder``."""
    return [
        mention
        for path in sorted(folder.rglob("test_*.py"))
        for mention in _mentions(path, ast.parse(path.read_text(), str(path)), test="", gpu=False)
    ]


def _mentions(path: Path, node: ast.AST, *, test: str, gpu: bool) -> Iterator[Mention]:
    """Yield the mentions below ``node``, which is inside ``test`` and already known to need a GPU or not."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        test = f"{test}::{node.name}" if test else node.name
        gpu = gpu or _needs_gpu(node.decorator_list)
    elif isinstance(node, ast.Module):
        gpu = _needs_gpu(_module_marks(node))
    if isinstance(node, ast.Call) and _is_mark(node.func, "spec"):
        for argument in node.args:
            line = argument.value if isinstance(argument, ast.Constant) else None
            if not isinstance(line, str):
                raise TypeError(f"{path}:{node.lineno}: spec() takes line ids as text, such as spec('T23')")
            yield Mention(line, path, node.lineno, test or "(module)", gpu)
    for child in ast.iter_child_nodes(node):
        yield from _mentions(path, child, test=test, gpu=gpu)


def _module_marks(module: ast.Module) -> Iterator[ast.expr]:
    for statement in module.body:
        if isinstance(statement, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in statement.targets
        ):
            yield statement.value


def _needs_gpu(marks: Iterable[ast.expr]) -> bool:
    return any(_is_mark(part, "gpu") for mark in marks for part in ast.walk(mark))


def _is_mark(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "mark"
    )


def missing_lines(groups: Sequence[Group], mentions: Sequence[Mention], letters: Sequence[str]) -> list[str]:
    """List the lines of the groups in ``letters`` that no test names."""
    named = {mention.line for mention in mentions}
    return [line for group in groups if group.letter in letters for line in group.lines if line not in named]


def unknown_mentions(groups: Sequence[Group], mentions: Sequence[Mention]) -> list[Mention]:
    """List the mentions of lines that the specification does not have."""
    known = {line for group in groups for line in group.lines}
    return [mention for mention in mentions if mention.line not in known]


def render(groups: Sequence[Group], mentions: Sequence[Mention]) -> str:
    """Write each line with the tests that name it, and a count for each group."""
    by_line: dict[str, list[Mention]] = defaultdict(list)
    for mention in mentions:
        by_line[mention.line].append(mention)
    out = []
    for group in groups:
        covered = [by_line[line] for line in group.lines if by_line[line]]
        gpu_only = sum(all(mention.gpu for mention in found) for found in covered)
        out.append(
            f"{group.letter}  {group.name}: {len(covered)} of {len(group.lines)} lines have a test"
            + (f", {gpu_only} of them only with a GPU" if gpu_only else "")
        )
        for line, title in group.lines.items():
            out.append(f"  {line:4} {title}" + ("" if by_line[line] else "  -- no test"))
            for mention in by_line[line]:
                place = f"{mention.path}:{mention.row}".removeprefix(f"{ROOT}/")
                out.append(f"         {place} {mention.test}" + (" (GPU)" if mention.gpu else ""))
    return "\n".join(out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report; 1 if a required line has no test or a test names no line that exists."""
    groups = load_groups()
    letters = [group.letter for group in groups]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--require", action="append", default=[], choices=letters, help="must be covered")
    parser.add_argument("--tests", type=Path, default=TESTS, help="the folder with the tests")
    options = parser.parse_args(arguments)
    mentions = find_mentions(options.tests)
    print(render(groups, mentions))
    missing = missing_lines(groups, mentions, options.require)
    unknown = unknown_mentions(groups, mentions)
    for line in missing:
        print(f"{line}: required, and no test names it", file=sys.stderr)
    for mention in unknown:
        print(f"{mention.path}:{mention.row}: {mention.line} is no line of {LINES.name}", file=sys.stderr)
    return 1 if missing or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
