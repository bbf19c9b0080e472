"""What one ``kernelmark kernel`` is asked to do, checked when it is built; travels to the worker as plain values.

Each field says here, and nowhere else, how it is written on a command line. It looks at no file's content and
imports no torch.
"""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from kernelmark.errors import UsageError
from kernelmark.records import Cache, OutputCheck
from kernelmark.text import suggestion

__all__ = [
    "LANGUAGES",
    "SOLUTION",
    "Baseline",
    "Job",
    "Language",
    "LanguageEntry",
    "Option",
    "Request",
    "SecondCheck",
    "choose_language",
    "options",
    "parse_baselines",
]

SOLUTION = "solution"
"""The name of the solution's row."""


# --- languages -----------------------------------------------------------------------------------------


class Language(StrEnum):
    """What ``--implementation`` can be, besides ``auto``."""

    CUDA_CPP = "cuda-cpp"
    CUTLASS = "cutlass"
    CPP = "cpp"
    TRITON = "triton"
    CUTE_DSL = "cute-dsl"
    TORCH = "torch"


@dataclass(frozen=True, slots=True)
class LanguageEntry:
    """One language.

    A ``library`` is a compiled file with ``solve``; a ``module`` is a Python file with ``setup`` and
    ``run_kernel``.
    """

    interface: Literal["library", "module"]
    suffixes: tuple[str, ...]
    runs_on: Literal["cuda", "cpu", "any"]
    backend: str
    """How it computes, in a few words for the report."""
    package: str | None = None
    """The Python package without which it cannot run."""
    distribution: str = ""
    """What to install to have that package, or the headers."""
    flags: tuple[str, ...] = ()
    """What its compiler is given besides."""
    headers: tuple[str, ...] = ()
    """Folders of headers in an installed package, from the package's name on."""
    own_arch: bool = False
    """Whether it is compiled for one architecture alone, with instructions that later ones do not have."""


LANGUAGES: dict[Language, LanguageEntry] = {
    Language.CUDA_CPP: LanguageEntry("library", (".cu",), "cuda", "CUDA C++"),
    Language.CUTLASS: LanguageEntry(
        "library",
        (".cu",),
        "cuda",
        "CUTLASS",
        distribution="nvidia-cutlass",
        # with its assertions, Hopper's matrix instructions are waited for one by one, as ptxas warns
        flags=("--expt-relaxed-constexpr", "-DNDEBUG"),
        headers=("cutlass_library/source/include", "cutlass_library/source/tools/util/include"),
        own_arch=True,
    ),
    Language.CPP: LanguageEntry("library", (".c", ".cc", ".cpp", ".cxx"), "cpu", "C or C++"),
    Language.TRITON: LanguageEntry("module", (".py",), "cuda", "Triton", "triton", "triton"),
    Language.CUTE_DSL: LanguageEntry("module", (".py",), "cuda", "CuTe DSL", "cutlass", "nvidia-cutlass-dsl"),
    Language.TORCH: LanguageEntry("module", (".py",), "any", "torch"),
}

_BY_SUFFIX = {
    ".py": Language.TRITON,
    **dict.fromkeys(LANGUAGES[Language.CPP].suffixes, Language.CPP),
    ".cu": Language.CUDA_CPP,
}
"""What ``auto`` takes a file to be."""


def choose_language(asked: str, solution: Path) -> Language:
    """Give the language that ``asked`` names; ``auto`` goes by the file's suffix.

    Raises:
        UsageError: there is no such language, or the file is not of its kind.
    """
    if asked == "auto":
        if solution.suffix not in _BY_SUFFIX:
            raise UsageError(
                f"{solution}: a solution is a {', '.join(_BY_SUFFIX)} file, this one ends in {solution.suffix!r}"
            )
        return _BY_SUFFIX[solution.suffix]
    if asked not in tuple(Language):
        raise UsageError(f"--implementation={asked}: there is auto, {', '.join(Language)}")
    language = Language(asked)
    suffixes = LANGUAGES[language].suffixes
    if solution.suffix not in suffixes:
        raise UsageError(
            f"--implementation={asked} takes a {' or '.join(suffixes)} file, not {solution.name};"
            " name another implementation, or leave it to auto"
        )
    return language


# --- baselines -----------------------------------------------------------------------------------------


class Baseline(StrEnum):
    """What a solution can be compared with."""

    EAGER = "pytorch-eager"
    COMPILE = "torch-compile"
    FLASHINFER = "flashinfer"


_ALIASES = {
    **dict.fromkeys(("eager", "torch", "pytorch", "torch-eager"), (Baseline.EAGER,)),
    **dict.fromkeys(("compile", "compiled", "torch.compile"), (Baseline.COMPILE,)),
    **dict.fromkeys(("flash-infer", "flash_infer"), (Baseline.FLASHINFER,)),
    **dict.fromkeys(("all", "default"), tuple(Baseline)),
    **dict.fromkeys(("none", "off"), ()),
}


def parse_baselines(text: str | Iterable[str]) -> tuple[Baseline, ...]:
    """Read ``--baselines``: names and aliases, separated by commas; duplicates collapse.

    Raises:
        UsageError: a name is unknown, or there is none at all.
    """
    known = _ALIASES | {each.value: (each,) for each in Baseline}
    found: dict[Baseline, None] = {}
    for part in text.split(",") if isinstance(text, str) else text:
        name = part.strip().lower()
        if name not in known:
            raise UsageError(
                f"there is no baseline {name!r}; there are {', '.join(Baseline)},"
                f" and these names for them: {', '.join(_ALIASES)}"
            )
        found |= dict.fromkeys(known[name])
    return tuple(found)


# --- requests ------------------------------------------------------------------------------------------

_TIMING_METHODS = {"cuda_event": "device_events", "host_time": "host"}
"""The names of kernel-benchmark scripts → ours. Our own names stand for themselves."""


@dataclass(frozen=True, slots=True)
class Option:
    """How a field of the request is written on a command line."""

    meaning: str
    names: tuple[str, ...] = ()
    """Where the field's own name with dashes will not do."""
    kind: type = str
    """What the text is read as, where the default does not show it."""
    least: int | None = None
    """The smallest whole number that it may be."""


def _told(meaning: str, **how: Any) -> dict[str, Option]:
    return {"option": Option(meaning, **how)}


def _option(default: Any, meaning: str, **how: Any) -> Any:
    return dataclasses.field(default=default, metadata=_told(meaning, **how))


@dataclass(frozen=True, slots=True)
class Request:
    """One comparison of a solution with its reference; ``values`` are dimensions and scalars by their exact names.

    Raises:
        UsageError: a value that no run could use.
    """

    solution: Path
    ref: Path = dataclasses.field(metadata=_told("Required: file with reference(**kwargs)."))
    output_dir: Path = dataclasses.field(metadata=_told("Required: folder for benchmark.md and the run."))
    values: Mapping[str, str] = dataclasses.field(default_factory=dict)
    implementation: str = _option(
        "auto",
        f"Language of SOLUTION: auto, {', '.join(Language)}.",
        names=("--implementation", "--backend", "--impl"),
    )
    baselines: tuple[Baseline, ...] = _option(
        (Baseline.EAGER,), f"What to compare with, separated by commas: {', '.join(Baseline)}, all, none."
    )
    timing_method: str | None = _option(
        None,
        f"Instrument: {', '.join(_TIMING_METHODS)}, or a timer's own name. By default cuda_event on CUDA"
        " devices, host_time elsewhere.",
    )
    num_warmup: int = _option(5, "Untimed rounds of each variant.", least=0)
    num_trials: int = _option(100, "Samples of each variant.", least=3)
    discard_first: int = _option(1, "Further untimed rounds.", least=0)
    prewarm_calls: int = _option(1, "Calls on other values, before anything is checked.", least=0)
    ptr_size: int = _option(0, "Elements of each buffer; 0 infers it.", least=0)
    arch: str = _option("auto", "Architecture in nvcc's command line.")
    device: str = _option("auto", "Where to run: auto, cpu, cuda, ...")
    gpu: int = _option(0, "Number of the CUDA device.", least=0)
    atol: float | None = _option(
        None, "Absolute tolerance; else the reference file's, else 1e-4.", kind=float
    )
    rtol: float | None = _option(
        None, "Relative tolerance; else the reference file's, else 1e-3.", kind=float
    )
    seed: int = _option(42, "What the inputs are drawn with.", least=0)
    cache: Cache = dataclasses.field(
        default=Cache.COLD,
        metadata=_told(
            "Caches before each timed call: cold (flushed) or warm (as the call before left them)."
        ),
    )
    timeout_s: float = _option(300.0, "Seconds that the solution may take.", names=("--timeout",))
    isolation: bool = _option(True, "Run in this process, for a debugger.", names=("--no-isolation",))
    compile: bool = _option(False, "Build the library from SOLUTION first.")
    compile_flags: tuple[str, ...] = _option((), "Added to the compiler's command line.")

    def __post_init__(self) -> None:
        read = {
            **{name: Path(getattr(self, name)) for name in ("solution", "ref", "output_dir")},
            "baselines": parse_baselines(self.baselines),
            "cache": Cache(_one_of("cache", self.cache, tuple(Cache))),
            "values": {name: str(value) for name, value in self.values.items()},
        }
        if isinstance(self.compile_flags, str):
            read["compile_flags"] = tuple(shlex.split(self.compile_flags))
        for name, value in read.items():
            object.__setattr__(self, name, value)
        self._require_numbers()
        self._require_words()
        for path, what in ((self.solution, "SOLUTION"), (self.ref, "--ref")):
            if not path.is_file():
                raise UsageError(f"{what}: there is no file {path}")
        if self.solution.resolve() == self.ref.resolve():
            raise UsageError(f"SOLUTION and --ref are the same file, {self.ref}; nothing would be compared")
        object.__setattr__(self, "implementation", choose_language(self.implementation, self.solution).value)

    def _require_numbers(self) -> None:
        for name, told in options().items():
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if told.least is not None and not (whole and value >= told.least):
                raise UsageError(f"{_written(name)}={value}: give a whole number of at least {told.least}")
        for name in ("atol", "rtol"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise UsageError(f"--{name}={value}: give a number of at least 0")
        if not 0 < self.timeout_s < math.inf:
            raise UsageError(f"--timeout={self.timeout_s}: give a number of seconds above 0")

    def _require_words(self) -> None:
        """Refuse names that nothing here bears, before anything is built."""
        from kernelmark.timing.timers import TIMERS

        if self.timing_method is not None:
            _one_of("timing_method", self.timing_method, (*_TIMING_METHODS, *(each.name for each in TIMERS)))
        if not re.fullmatch(r"auto|native|all(-major)?|(sm|compute|lto)_\d+[af]?", self.arch):
            raise UsageError(f"--arch={self.arch}: give an architecture such as sm_90 or sm_90a, or auto")
        if not re.fullmatch(r"[a-z]+(:\d+)?", self.device):
            raise UsageError(f"--device={self.device}: give a device such as cpu, cuda or cuda:1, or auto")
        for name in (name for name, value in self.values.items() if not value.strip()):
            raise UsageError(f"--{name}= has no value; write --{name}=VALUE")

    @property
    def language(self) -> Language:
        """The language of the solution."""
        return Language(self.implementation)

    @property
    def interpreted(self) -> bool:
        """Whether the solution runs in Triton's interpreter, which verifies and times nothing."""
        return self.language is Language.TRITON and self.device == "cpu"

    @property
    def timer(self) -> str | None:
        """The engine's name of the instrument that is asked for; ``None`` leaves it to the device."""
        return _TIMING_METHODS.get(self.timing_method or "", self.timing_method)

    @property
    def case_id(self) -> str:
        """What is compared: the solution's name and the values it is given."""
        return " ".join([self.solution.stem, *(f"{name}={value}" for name, value in self.values.items())])


def options() -> dict[str, Option]:
    """Give the fields of a request that are options of a command line."""
    fields = dataclasses.fields(Request)
    return {each.name: each.metadata["option"] for each in fields if "option" in each.metadata}


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        near = suggestion(value, known, there_are="there are")
        raise UsageError(f"{_written(name)}={value}: there is no such one; {near}")
    return value


def _written(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# --- what travels between processes --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Job:
    """What a process of its own is to do."""

    folder: Path
    """Where the worker leaves its run, and its answers for the judge."""
    request: Request
    library: Path | None
    seed: int | None = None
    """What the values of the second check are drawn with; the judge is told, a worker asks after timing."""


@dataclass(frozen=True, slots=True)
class SecondCheck:
    """What was found when the answers were checked again, where no solution was ever loaded; blank: nothing."""

    wrong: str = ""
    """What is wrong with them."""
    vacuous: str = ""
    """Why a right answer proves nothing."""
    undone: str = ""
    """Why they could not be handed over to be checked again."""
    broken: str = ""
    """What stopped the check itself."""
    outputs: tuple[OutputCheck, ...] = ()
    """What was found of each output."""
