"""Finds the compiled library of a solution, says how to build it, and builds it where that is asked for.

A library is never built unasked. One that is built lies in a cache under a hash of the preprocessed source,
the compiler and the flags, so that a changed header counts as much as a changed source.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kernelmark.errors import UnavailableError, UsageError
from kernelmark.files import draft
from kernelmark.kernelfile.request import LANGUAGES, LanguageEntry, Request
from kernelmark.records import Note, NoteKind

__all__ = ["Compiler", "Library", "compiler_for", "find_library"]

_COMPILE_LIMIT_S = 1800
"""Large CUTLASS files take minutes; half an hour is a compiler that hangs."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """One compiler with its options."""

    program: str
    options: tuple[str, ...]
    advice: str = ""
    """What to do where a header is not found."""

    def command(self, source: Path, library: Path) -> list[str]:
        """Give the command that builds ``library`` from ``source``."""
        return [self.program, *self.options, "-o", str(library), str(source)]


@dataclass(frozen=True, slots=True)
class Library:
    """The compiled solution."""

    path: Path
    built_with: str
    """The line that built it; says so where somebody else did."""
    notes: tuple[Note, ...] = ()


def find_library(request: Request) -> Library:
    """Give the library of the solution: the one beside it, or with ``compile`` one built from it.

    Raises:
        UnavailableError: there is none, it is older than its source, or there is no compiler; the message
            has the line to run.
        UsageError: the source does not compile.
    """
    compiler = compiler_for(request)
    source, library = request.solution, request.solution.with_suffix(".so")
    line = shlex.join(compiler.command(source, library))
    if request.compile:
        return _built(source, compiler, line)
    advice = f"or add --compile:\n  {line}" + (f"\n{compiler.advice}" if compiler.advice else "")
    if not library.is_file():
        raise UnavailableError(f"there is no {library}; build it, {advice}")
    if library.stat().st_mtime_ns < source.stat().st_mtime_ns:
        raise UnavailableError(f"{library} is older than {source}; build it again, {advice}")
    return Library(library, "unknown: the library was there")


def compiler_for(request: Request) -> Compiler:
    """Give the compiler of the solution's language, whether it is installed or not."""
    entry = LANGUAGES[request.language]
    if entry.runs_on == "cuda":
        arch = _device_arch(request.gpu, own=entry.own_arch) if request.arch == "auto" else request.arch
        options = ("-shared", "-std=c++17", f"-arch={arch}", "-O3", "-Xcompiler", "-fPIC", *entry.flags)
        # the user's own folders come first
        found, advice = _headers(entry)
        return Compiler("nvcc", (*options, *request.compile_flags, *found), advice)
    plain_c = request.solution.suffix == ".c"
    asked = os.environ.get("CC" if plain_c else "CXX", "").split()
    known = ("gcc", "clang", "cc") if plain_c else ("g++", "clang++", "c++")
    program = asked[0] if asked else next((name for name in known if shutil.which(name)), known[0])
    options = ("-shared", "-std=c11" if plain_c else "-std=c++17", "-O3", "-march=native", "-fPIC")
    return Compiler(program, (*asked[1:], *options, *request.compile_flags))


def _headers(entry: LanguageEntry) -> tuple[tuple[str, ...], str]:
    """Give the options that name the headers of an installed package, or what to do without one."""
    folders = []
    for path in entry.headers:
        package, _, rest = path.partition("/")
        spec = importlib.util.find_spec(package)
        roots = spec.submodule_search_locations if spec is not None else None
        folders += [Path(root) / rest for root in roots or ()]
    found = tuple(f"-I{folder}" for folder in folders if folder.is_dir())
    if found or not entry.headers:
        return found, ""
    return (), (
        f"{entry.backend}'s headers are found by themselves once {entry.distribution} is installed; otherwise add"
        " --compile-flags=-I/path/to/include"
    )


def _built(source: Path, compiler: Compiler, line: str) -> Library:
    if shutil.which(compiler.program) is None:
        raise UnavailableError(
            f"--compile: there is no {compiler.program} here; install it, or build elsewhere:\n  {line}"
        )
    try:
        preprocessed = _run([compiler.program, *compiler.options, "-E", str(source)], source)
    except UsageError as error:
        if compiler.advice and "No such file" in str(error):  # house: a compiler only has words
            raise UnavailableError(f"{error}\n{compiler.advice}") from error
        raise
    version = _run([compiler.program, "--version"], source)
    key = hashlib.sha256("\0".join([*compiler.options, version, preprocessed]).encode()).hexdigest()[:24]
    told = Path(os.environ.get("XDG_CACHE_HOME", ""))
    cache = told if told.is_absolute() else Path.home() / ".cache"
    library = cache / "kernelmark" / "libraries" / sys.platform / key / f"{source.stem}.so"
    if not library.is_file():
        library.parent.mkdir(parents=True, exist_ok=True)
        with draft(library) as partial:
            _run(compiler.command(source, partial), source)
    pragmas = re.search(r"^\s*#\s*pragma\s+omp\s", preprocessed, re.MULTILINE)
    ignored = pragmas and not any("openmp" in each for each in compiler.options)
    notes = (Note.of(NoteKind.NO_OPENMP),) if ignored else ()
    return Library(library, shlex.join(compiler.command(source, library)), notes)


def _run(command: list[str], source: Path) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_COMPILE_LIMIT_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{source} did not compile within {_COMPILE_LIMIT_S} s") from error
    if done.returncode != 0:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-30:])
        raise UsageError(f"{source} does not compile:\n  {shlex.join(command)}\n{said}")
    return done.stdout


def _device_arch(index: int, *, own: bool) -> str:
    """Ask the driver for the device's architecture; where there is no driver, the documented default, sm_90.

    With ``own``, the instructions that only this architecture has are asked for too, where it has any: from 90 on.
    """
    digits = "90"
    # without a driver there is no such program, and a broken one is no reason not to build
    with suppress(OSError, subprocess.SubprocessError):
        command = ["nvidia-smi", f"--id={index}", "--query-gpu=compute_cap", "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
        told = done.stdout.strip().replace(".", "")
        digits = told if told.isdigit() else digits
    return f"sm_{digits}{'a' if own and int(digits) >= 90 else ''}"
