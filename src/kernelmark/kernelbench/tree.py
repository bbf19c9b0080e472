"""Finds KernelBench's tree of model files, and says what in it is not as a suite has it.

It reads names and sizes; it runs no model.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelmark.errors import UnavailableError, UsageError
from kernelmark.kernelbench.suite import Entry

__all__ = ["REVISION", "VARIABLE", "TreeCheck", "check_tree", "find_tree"]

VARIABLE = "KERNELBENCH_ROOT"
REVISION = "423217d"
"""The revision whose names and sizes the suites hold."""
_ADVICE = (
    "get it with `git clone https://github.com/ScalingIntelligence/KernelBench` and name the folder with"
    f" --kernelbench-root or {VARIABLE}; with `--suite own` nothing needs to be downloaded"
)


def find_tree(named: Path | None, environment: Mapping[str, str] = os.environ) -> Path:
    """Give the folder that holds ``level1``, ``level2``, ...: the one named, or the environment's.

    Both the repository's folder and the folder of that name in it will do.

    Raises:
        UnavailableError: none is named.
        UsageError: what is named holds no levels.
    """
    told = named or (Path(environment[VARIABLE]) if environment.get(VARIABLE) else None)
    if told is None:
        raise UnavailableError(f"these kernels are KernelBench's, and its tree was not named; {_ADVICE}")
    for folder in (told, told / "KernelBench"):
        if any((folder / f"level{number}").is_dir() for number in (1, 2, 3)):
            return folder
    option = "--kernelbench-root" if named else VARIABLE
    what = "holds no level1, level2 or level3" if told.is_dir() else "is no folder"
    raise UsageError(f"{option} {told}: it {what}; {_ADVICE}")


@dataclass(frozen=True, slots=True)
class TreeCheck:
    """How a tree compares with the suites."""

    root: Path
    revision: str
    """The tree's revision, or why it is not known."""
    missing: tuple[str, ...]
    """Kernels of the suites that the tree has no file for."""
    extra: tuple[str, ...]
    """Files of the same levels that no suite names."""

    @property
    def agrees(self) -> bool:
        """Whether every kernel of the suites is there, at the revision that they were written for."""
        return not self.missing and not self.extra and self.revision.startswith(REVISION)

    def lines(self) -> tuple[str, ...]:
        """Say it in lines."""
        same = self.revision.startswith(REVISION)
        note = (
            "the one that the suites were written for" if same else f"the suites were written for {REVISION}"
        )
        return (
            f"tree: {self.root}",
            f"revision: {self.revision} ({note})",
            *(f"missing: {name}" for name in self.missing),
            *(f"in no suite: {name}" for name in self.extra),
            "every kernel of the suites is there" if not self.missing else f"{len(self.missing)} are missing",
        )


def check_tree(root: Path, entries: Iterable[Entry]) -> TreeCheck:
    """Compare the files below ``root`` with the entries of the suites."""
    named = {entry.kernel for entry in entries}
    levels = sorted({name.split("/", 1)[0] for name in named})
    present = {f"{level}/{file.name}" for level in levels for file in (root / level).glob("*.py")}
    return TreeCheck(root, _revision(root), tuple(sorted(named - present)), tuple(sorted(present - named)))


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
