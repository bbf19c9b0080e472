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
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from kernelmark.errors import UsageError
from kernelmark.kernelfile.languages import Language, choose_language
from kernelmark.records import Cache
from kernelmark.text import suggestion

__all__ = ["SOLUTION", "Baseline", "Option", "Request", "options", "parse_baselines"]

SOLUTION = "solution"
"""The name of the solution's row."""

TIMING_METHODS = {"cuda_event": "device_events", "host_time": "host"}
"""The names of kernel-benchmark scripts → ours. Our own names stand for themselves."""

_ARCH = re.compile(r"auto|native|all(-major)?|(sm|compute|lto)_\d+[af]?")
_DEVICE = re.compile(r"[a-z]+(:\d+)?")


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
    names = [part.strip().lower() for part in (text.split(",") if isinstance(text, str) else text)]
    found: dict[Baseline, None] = {}
    for name in names:
        known = _ALIASES.get(name) if name not in tuple(Baseline) else (Baseline(name),)
        if known is None:
            raise UsageError(
                f"there is no baseline {name!r}; there are {', '.join(Baseline)},"
                f" and these names for them: {', '.join(_ALIASES)}"
            )
        found |= dict.fromkeys(known)
    return tuple(found)


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


@dataclass(frozen=True, slots=True)
class Request:
    """One comparison of a solution with its reference; ``values`` are dimensions and scalars by their exact names.

    Raises:
        UsageError: a value that no run could use.
    """

    solution: Path
    ref: Path = field(metadata=_told("Required: file with reference(**kwargs)."))
    output_dir: Path = field(metadata=_told("Required: folder for benchmark.md and the run."))
    values: Mapping[str, str] = field(default_factory=dict)
    implementation: str = field(
        default="auto",
        metadata=_told(
            f"Language of SOLUTION: auto, {', '.join(Language)}.",
            names=("--implementation", "--backend", "--impl"),
        ),
    )
    baselines: tuple[Baseline, ...] = field(
        default=(Baseline.EAGER,),
        metadata=_told(f"What to compare with, separated by commas: {', '.join(Baseline)}, all, none."),
    )
    timing_method: str | None = field(
        default=None,
        metadata=_told(
            f"Instrument: {', '.join(TIMING_METHODS)}, or a timer's own name. By default cuda_event on CUDA"
            " devices, host_time elsewhere."
        ),
    )
    num_warmup: int = field(default=5, metadata=_told("Untimed rounds of each variant.", least=0))
    num_trials: int = field(default=100, metadata=_told("Samples of each variant.", least=3))
    discard_first: int = field(default=1, metadata=_told("Further untimed rounds.", least=0))
    prewarm_calls: int = field(
        default=1, metadata=_told("Calls on other values, before anything is checked.", least=0)
    )
    ptr_size: int = field(default=0, metadata=_told("Elements of each buffer; 0 infers it.", least=0))
    arch: str = field(default="auto", metadata=_told("Architecture in nvcc's command line."))
    device: str = field(default="auto", metadata=_told("Where to run: auto, cpu, cuda, ..."))
    gpu: int = field(default=0, metadata=_told("Number of the CUDA device.", least=0))
    atol: float | None = field(
        default=None, metadata=_told("Absolute tolerance; else the reference file's, else 1e-4.", kind=float)
    )
    rtol: float | None = field(
        default=None, metadata=_told("Relative tolerance; else the reference file's, else 1e-3.", kind=float)
    )
    seed: int = field(default=42, metadata=_told("What the inputs are drawn with.", least=0))
    cache: Cache = field(
        default=Cache.COLD,
        metadata=_told(
            "Caches before each timed call: cold (flushed) or warm (as the call before left them)."
        ),
    )
    timeout_s: float = field(
        default=300.0, metadata=_told("Seconds that the solution may take.", names=("--timeout",))
    )
    isolation: bool = field(
        default=True, metadata=_told("Run in this process, for a debugger.", names=("--no-isolation",))
    )
    compile: bool = field(default=False, metadata=_told("Build the library from SOLUTION first."))
    compile_flags: tuple[str, ...] = field(
        default=(), metadata=_told("Added to the compiler's command line.")
    )

    def __post_init__(self) -> None:
        read = {
            **{name: Path(getattr(self, name)) for name in ("solution", "ref", "output_dir")},
            "baselines": parse_baselines(self.baselines),
            "cache": Cache(_one_of("cache", self.cache, tuple(Cache), "there are")),
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
            if told.least is not None and (
                isinstance(value, bool) or not isinstance(value, int) or value < told.least
            ):
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
            methods = (*TIMING_METHODS, *(entry.name for entry in TIMERS))
            _one_of("timing_method", self.timing_method, methods, "there are")
        if not _ARCH.fullmatch(self.arch):
            raise UsageError(f"--arch={self.arch}: give an architecture such as sm_90 or sm_90a, or auto")
        if not _DEVICE.fullmatch(self.device):
            raise UsageError(f"--device={self.device}: give a device such as cpu, cuda or cuda:1, or auto")
        blank = [name for name, value in self.values.items() if not value.strip()]
        if blank:
            raise UsageError(f"--{blank[0]}= has no value; write --{blank[0]}=VALUE")

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
        method = self.timing_method
        return None if method is None else TIMING_METHODS.get(method, method)

    @property
    def case_id(self) -> str:
        """What is compared: the solution's name and the values it is given."""
        return " ".join([self.solution.stem, *(f"{name}={value}" for name, value in self.values.items())])


def options() -> dict[str, Option]:
    """Give the fields of a request that are options of a command line."""
    return {
        each.name: each.metadata["option"]
        for each in dataclasses.fields(Request)
        if "option" in each.metadata
    }


def _one_of(name: str, value: str, known: Iterable[str], there_are: str) -> str:
    known = tuple(known)
    if value not in known:
        near = suggestion(value, known, there_are=there_are)
        raise UsageError(f"{_written(name)}={value}: there is no such one; {near}")
    return value


def _written(name: str) -> str:
    return f"--{name.replace('_', '-')}"
