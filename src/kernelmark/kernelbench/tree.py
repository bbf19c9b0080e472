"""Finds suites and the model files that they name: those that come with kernelmark, and KernelBench's tree.

It reads names, sizes and contents; it runs no model.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelmark.errors import UnavailableError, UsageError
from kernelmark.kernelbench.suite import Entry, load_suite
from kernelmark.text import counted, suggestion

__all__ = [
    "ADVICE",
    "LEVELS",
    "OWN",
    "REVISION",
    "VARIABLE",
    "Chosen",
    "TreeCheck",
    "check_tree",
    "choose",
    "find_tree",
]

VARIABLE = "KERNELBENCH_ROOT"
REVISION = "423217d"
"""The revision whose names and sizes the suites hold."""
OWN = "own"
"""The suite of the models that come with kernelmark."""
LEVELS = ("level1", "level2", "level3")
SHIPPED = Path(__file__).parent / "suites"
"""Suites, the models of one's own, and what the tree's files should be: ``examples/KernelBench`` of the project."""
ADVICE = (
    "get it with `git clone https://github.com/ScalingIntelligence/KernelBench` and name the folder with"
    f" --kernelbench-root or {VARIABLE}"
)
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Chosen:
    """The entries of the suites that were asked for, and the folder that holds their files."""

    entries: tuple[Entry, ...]
    root: Path
    fallen_back: bool = False
    """Whether these are kernelmark's own models because nobody named a suite or a tree."""


def choose(
    suites: Sequence[str],
    *,
    root: Path | None = None,
    kernels: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> Chosen:
    """Load suites, and find their files.

    Args:
        suites: Names or files. None at all are the levels that ``kernels`` name, or all of them, where there is a
            tree, and kernelmark's own models where there is none.
        root: KernelBench's tree, where it is named.
        kernels: Beginnings of kernels' names.
        environment: Where a tree may be named too.

    Raises:
        UsageError: there is no such suite, or the tree that is named is none.
        SuiteError: a suite is malformed.
        UnavailableError: a suite needs a tree, and none is named.
    """
    has_tree = root is not None or bool(environment.get(VARIABLE))
    fallen_back = not suites and not has_tree
    named = [level for level in LEVELS if any(kernel.startswith(level) for kernel in kernels)]
    names = list(suites) or ([OWN] if fallen_back else named or list(LEVELS))
    if OWN in names and len(names) > 1:
        raise UsageError(f"--suite {OWN} has files of its own; run it by itself")
    entries = tuple(entry for name in names for entry in load_suite(_suite_file(name)).entries)
    return Chosen(
        entries, SHIPPED / "models" if names == [OWN] else find_tree(root, environment), fallen_back
    )


def _suite_file(name: str) -> Path:
    if name in (OWN, *LEVELS):
        return SHIPPED / f"{name}.yaml"
    path = Path(name)
    if not path.is_file() and path.suffix not in (".yaml", ".yml"):
        hint = suggestion(name, (OWN, *LEVELS), there_are="suites that come with kernelmark")
        raise UsageError(f"--suite {name}: there is no such suite, and no such file; {hint}")
    return path


def find_tree(named: Path | None, environment: Mapping[str, str] = os.environ) -> Path:
    """Give the folder that holds ``level1``, ``level2``, ...: the one named, or the environment's.

    Both the repository's folder and the folder of that name in it will do.

    Raises:
        UnavailableError: none is named.
        UsageError: what is named holds no levels.
    """
    told = named or (Path(environment[VARIABLE]) if environment.get(VARIABLE) else None)
    if told is None:
        raise UnavailableError(
            f"these kernels are KernelBench's, and its tree was not named; {ADVICE}; with `--suite {OWN}` nothing"
            " needs to be downloaded"
        )
    for folder in (told, told / "KernelBench"):
        if any((folder / level).is_dir() for level in LEVELS):
            return folder
    option = "--kernelbench-root" if named else VARIABLE
    what = "holds no level1, level2 or level3" if told.is_dir() else "is no folder"
    raise UsageError(f"{option} {told}: it {what}; {ADVICE}")


# --- what a tree holds ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TreeCheck:
    """How a tree compares with the suites."""

    root: Path
    revision: str
    """What git says of it, or why that is not known."""
    missing: tuple[str, ...]
    """Kernels of the suites that the tree has no file for."""
    changed: tuple[str, ...]
    """Kernels whose file is another than that of the suites' revision, so that sizes and arguments may be others."""
    extra: tuple[str, ...]
    """Files of the same levels that no suite names."""
    compared: int
    """Files whose contents were compared."""

    @property
    def agrees(self) -> bool:
        """Whether the tree holds what the suites were written for, whatever git says of it."""
        return not (self.missing or self.changed or self.extra)

    def lines(self) -> tuple[str, ...]:
        """Write what was found."""
        wrong = [counted(len(self.missing), "kernel") + " missing"] if self.missing else []
        wrong += [f"{counted(len(self.changed), 'file')} changed"] if self.changed else []
        wrong += [f"{counted(len(self.extra), 'file')} in no suite"] if self.extra else []
        same = f"as revision {REVISION} has them, which the suites were written for"
        return (
            f"tree: {self.root}",
            f"revision: {self.revision}",
            *(f"missing: {name}" for name in self.missing),
            *(f"changed since {REVISION}: {name}" for name in self.changed),
            *(f"in no suite: {name}" for name in self.extra),
            f"not as revision {REVISION}: {', '.join(wrong)}"
            if wrong
            else f"{self.compared} files are {same}",
        )


def check_tree(root: Path, entries: Iterable[Entry]) -> TreeCheck:
    """Compare the files below ``root`` with the entries of the suites, and with the contents that they should have."""
    named = {entry.kernel for entry in entries}
    levels = sorted({name.split("/", 1)[0] for name in named})
    present = {f"{level}/{file.name}" for level in levels for file in (root / level).glob("*.py")}
    known = _contents()
    compared = sorted(named & present & known.keys())
    return TreeCheck(
        root,
        _revision(root),
        missing=tuple(sorted(named - present)),
        changed=tuple(name for name in compared if _blob(root / name) != known[name]),
        extra=tuple(sorted(present - named)),
        compared=len(compared),
    )


def _contents() -> dict[str, str]:
    """Give what the contents of each file are called at the suites' revision."""
    lines = (SHIPPED / "revision.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split() for line in lines if not line.startswith("#"))
    return {name: digits for digits, name in pairs}


def _blob(path: Path) -> str:
    """Give what git calls a file's contents, ends of lines as on Unix; an archive holds the same without git."""
    data = path.read_bytes().replace(b"\r\n", b"\n")
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()[:_DIGITS]


def _revision(root: Path) -> str:
    try:
        asked = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "--short=7", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown: {error}"
    return asked.stdout.strip() if asked.returncode == 0 else "unknown: the tree is no git checkout"
