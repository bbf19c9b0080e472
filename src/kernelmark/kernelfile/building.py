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
from dataclasses import dataclass
from pathlib import Path

from kernelmark.errors import UnavailableError, UsageError
from kernelmark.files import draft
from kernelmark.kernelfile.languages import LANGUAGES, LanguageEntry
from kernelmark.kernelfile.request import Request

__all__ = ["Compiler", "Library", "compiler_for", "find_library"]

_DEFAULT_ARCH = "sm_90"
_FIRST_WITH_ITS_OWN = 90
_OPENMP = re.compile(r"^\s*#\s*pragma\s+omp\s", re.MULTILINE)
_NO_OPENMP = (
    "#pragma omp had no effect: it was built without OpenMP; add --compile-flags=-fopenmp, with nvcc"
    " --compile-flags=-Xcompiler=-fopenmp"
)
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

    def line(self, source: Path, library: Path) -> str:
        """Give that command as it is typed."""
        return shlex.join(self.command(source, library))


@dataclass(frozen=True, slots=True)
class Library:
    """The compiled solution."""

    path: Path
    built_with: str
    """The line that built it; says so where somebody else did."""
    notes: tuple[str, ...] = ()


def find_library(request: Request) -> Library:
    """Give the library of the solution: the one beside it, or with ``compile`` one built from it.

    Raises:
        UnavailableError: there is none, it is older than its source, or there is no compiler; the message
            has the line to run.
        UsageError: the source does not compile.
    """
    compiler = compiler_for(request)
    if request.compile:
        return _built(request.solution, compiler)
    source, library = request.solution, request.solution.with_suffix(".so")
    line = compiler.line(source, library) + (f"\n{compiler.advice}" if compiler.advice else "")
    if not library.is_file():
        raise UnavailableError(f"there is no {library}; build it, or add --compile:\n  {line}")
    if library.stat().st_mtime_ns < source.stat().st_mtime_ns:
        raise UnavailableError(
            f"{library} is older than {source}; build it again, or add --compile:\n  {line}"
        )
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


def _built(source: Path, compiler: Compiler) -> Library:
    if shutil.which(compiler.program) is None:
        raise UnavailableError(
            f"--compile: there is no {compiler.program} here; install it, or build elsewhere:\n"
            f"  {compiler.line(source, source.with_suffix('.so'))}"
        )
    try:
        preprocessed = _run([compiler.program, *compiler.options, "-E", str(source)], source)
    except UsageError as error:
        if compiler.advice and "No such file" in str(error):  # house: a compiler only has words
            raise UnavailableError(f"{error}\n{compiler.advice}") from error
        raise
    version = _run([compiler.program, "--version"], source)
    key = hashlib.sha256("\0".join([*compiler.options, version, preprocessed]).encode()).hexdigest()[:24]
    library = _cache_folder() / key / f"{source.stem}.so"
    if not library.is_file():
        library.parent.mkdir(parents=True, exist_ok=True)
        with draft(library) as partial:
            _run(compiler.command(source, partial), source)
    ignored = _OPENMP.search(preprocessed) and not any("openmp" in each for each in compiler.options)
    return Library(library, compiler.line(source, library), (_NO_OPENMP,) if ignored else ())


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


def _cache_folder() -> Path:
    told = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(told) if told and Path(told).is_absolute() else Path.home() / ".cache"
    return base / "kernelmark" / "libraries" / sys.platform


def _device_arch(index: int, *, own: bool) -> str:
    """Ask the driver for the device's architecture; where there is no driver, the documented default.

    With ``own``, the instructions that only this architecture has are asked for too, where it has any.
    """
    arch = _asked_of_driver(index) or _DEFAULT_ARCH
    return f"{arch}a" if own and int(arch.removeprefix("sm_")) >= _FIRST_WITH_ITS_OWN else arch


def _asked_of_driver(index: int) -> str | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, f"--id={index}", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    digits = done.stdout.strip().replace(".", "")
    return f"sm_{digits}" if done.returncode == 0 and digits.isdigit() else None
