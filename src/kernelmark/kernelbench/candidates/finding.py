"""Finds candidates in a folder and the problem that each is for; by names alone, nothing is read or run.

Three layouts are known: a tree of levels, KernelBench's own names of generated files, and numbers at the top of
a folder whose level is told. The number of a problem decides; what follows it is for people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelmark.errors import UsageError
from kernelmark.kernelbench.suite import Entry
from kernelmark.text import listing, suggestion

__all__ = ["Candidate", "find_candidates"]

_GENERATED = re.compile(r"level_(\d+)_problem_(\d+)(?:_sample_\d+)?(?:_kernel)?")
_LEVEL = re.compile(r"level_?(\d+)")
_NUMBERED = re.compile(r"(\d+)(?:_.*)?")
_SHOWN = 5
_NEAR = 3


@dataclass(frozen=True, slots=True)
class Candidate:
    """One file that holds a ``ModelNew``."""

    name: str
    """Its path below the folder, with slashes."""
    path: Path
    entry: Entry
    """The problem that it is for."""


def find_candidates(
    folder: Path, entries: Sequence[Entry], *, level: int | None = None
) -> tuple[Candidate, ...]:
    """Match every Python file below ``folder`` with its problem, in the problems' order and then by name.

    Args:
        folder: Where to look.
        entries: The problems of the suites.
        level: Of files whose name gives only the problem's number.

    Raises:
        UsageError: there is no such folder, no file in it, or a file that fits no problem; with what is near.
    """
    if not folder.is_dir():
        raise UsageError(f"--candidates {folder}: there is no such folder")
    files = sorted(_python_files(folder))
    if not files:
        raise UsageError(f"--candidates {folder}: it holds no Python file; {_FORMS}")
    known = {key: (place, entry) for place, entry in enumerate(entries) if (key := _key_of(entry))}
    found: list[tuple[int, Candidate]] = []
    lost: list[str] = []
    for path in files:
        name = path.relative_to(folder).as_posix()
        place, entry = known.get(_key(name, level) or ("", 0), (0, None))
        if entry is None:
            lost.append(f"  {name}: {_why(name, level, entries)}")
        else:
            found.append((place, Candidate(name, path, entry)))
    if lost:
        more = [f"  and {len(lost) - _SHOWN} more"] if len(lost) > _SHOWN else []
        told = "\n".join([*lost[:_SHOWN], *more])
        raise UsageError(
            f"--candidates {folder}: {len(lost)} of {len(files)} files fit no problem of the suite:\n{told}\n{_FORMS}"
        )
    return tuple(candidate for _, candidate in sorted(found, key=lambda each: (each[0], each[1].name)))


_FORMS = (
    "write level1/1_NAME.py, level1/1_NAME/ANY.py, level_1_problem_1_sample_0_kernel.py, or with --level 1"
    " 1_NAME.py"
)


def _python_files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*.py"):
        inside = path.relative_to(folder).parts
        if path.is_file() and not any(part.startswith((".", "__")) for part in inside):
            yield path


def _key_of(entry: Entry) -> tuple[str, int] | None:
    level, _, file = entry.kernel.rpartition("/")
    number = _NUMBERED.fullmatch(file.removesuffix(".py"))
    return (level, int(number[1])) if number else None


def _key(name: str, level: int | None) -> tuple[str, int] | None:
    """Read level and number from a candidate's path; ``None`` where it gives none."""
    *folders, stem = name.removesuffix(".py").split("/")
    if generated := _GENERATED.fullmatch(stem):
        return f"level{int(generated[1])}", int(generated[2])
    named = f"level{level}" if level is not None else None
    if folders and (found := _LEVEL.fullmatch(folders[0])):
        named, folders = f"level{int(found[1])}", folders[1:]
    number = _NUMBERED.fullmatch([*folders, stem][0])
    return (named, int(number[1])) if named and number else None


def _why(name: str, level: int | None, entries: Iterable[Entry]) -> str:
    """Say why a file fits no problem, with the names near it."""
    kernels = {entry.kernel: _key_of(entry) for entry in entries}
    key = _key(name, level)
    if key is None:
        if level is None and _NUMBERED.fullmatch(name.split("/")[0].removesuffix(".py")):
            return "its name gives a number and no level; add --level"
        hint = _similar(name, kernels) or suggestion(name, kernels, there_are="problems")
        return f"its name gives no level and number of a problem; {hint}"
    there = {kernel: found[1] for kernel, found in kernels.items() if found and found[0] == key[0]}
    if not there:
        levels = sorted({found[0] for found in kernels.values() if found})
        return f"the suite has no {key[0]}; it has {', '.join(levels)}"
    near = sorted(there, key=lambda kernel: abs(there[kernel] - key[1]))[:_NEAR]
    return f"{key[0]} has no problem {key[1]}; {_similar(name, there) or f'near it are {listing(near)}'}"


def _similar(name: str, kernels: Iterable[str]) -> str:
    """Name the problems that have the words of a file's name in theirs; blank where none has."""
    word = name.split("/")[-1].removesuffix(".py").strip("0123456789_").lower()
    inside = [kernel for kernel in kernels if len(word) > 2 and word in kernel.lower()]
    return f"did you mean {listing(inside)}?" if inside else ""
