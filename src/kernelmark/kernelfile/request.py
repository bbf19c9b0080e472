"""What one ``kernelmark kernel`` is asked to do, checked when it is built; travels to the worker as JSON.

It looks at no file's content and imports no torch.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from kernelmark.errors import UsageError
from kernelmark.kernelfile.languages import Language, choose_language
from kernelmark.records import Cache
from kernelmark.text.near import suggestion

__all__ = ["SOLUTION", "TIMING_METHODS", "Baseline", "Request", "parse_baselines"]

SOLUTION = "solution"
"""The name of the solution's row."""

FEWEST_TRIALS = 4
"""Two passes in each of two blocks, without which nothing is known about spread."""
_BLOCKS, _MOST_BLOCKS, _FEWEST_BLOCKS = 10, 25, 5
"""How many blocks a comparison should have, and between which bounds it may have another number so that the
samples divide evenly: the interval is over blocks, and around each of their passes the instrument is started and
stopped."""

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
class Request:
    """One comparison of a solution with its reference.

    Args:
        solution: The file with the kernel.
        ref: The file with ``reference(**kwargs)``.
        output_dir: Where ``benchmark.md``, ``benchmark.json`` and the run go.
        values: Dimensions and scalars as text, by their exact names.
        implementation: A language, or ``auto``.
        baselines: What to compare with.
        timing_method: ``None`` for ``cuda_event`` on CUDA devices and ``host_time`` on others.
        num_trials: Samples of each variant; a number that divides into blocks of two equal passes.
        discard_first: Rounds after the warm-up whose readings are not kept.
        prewarm_calls: Calls on other values, before anything is checked.
        ptr_size: Elements of each buffer of ``solve``; 0 infers it.
        timeout_s: How long the worker may take, once it has started up.
        isolation: Whether the solution runs in a process of its own.
        compile: Whether to build the library from the source.
        compile_flags: Added to the compiler's command line.

    Raises:
        UsageError: a value that no run could use.
    """

    solution: Path
    ref: Path
    output_dir: Path
    values: Mapping[str, str] = field(default_factory=dict)
    implementation: str = "auto"
    baselines: tuple[Baseline, ...] = (Baseline.EAGER,)
    timing_method: str | None = None
    num_warmup: int = 5
    num_trials: int = 100
    discard_first: int = 1
    prewarm_calls: int = 1
    ptr_size: int = 0
    arch: str = "auto"
    device: str = "auto"
    gpu: int = 0
    atol: float | None = None
    rtol: float | None = None
    seed: int = 42
    cache: Cache = Cache.COLD
    timeout_s: float = 300.0
    isolation: bool = True
    compile: bool = False
    compile_flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("solution", "ref", "output_dir"):
            object.__setattr__(self, name, Path(getattr(self, name)))
        object.__setattr__(self, "baselines", parse_baselines(self.baselines))
        object.__setattr__(self, "cache", Cache(self.cache))
        object.__setattr__(self, "values", {name: str(value) for name, value in self.values.items()})
        for name, least in _LEAST.items():
            _require_count(name, getattr(self, name), least)
        _require_blocks(self.num_trials)
        for name in ("atol", "rtol"):
            _require_tolerance(name, getattr(self, name))
        self._require_words()
        if not self.timeout_s > 0 or math.isinf(self.timeout_s):
            raise UsageError(f"--timeout={self.timeout_s}: give a number of seconds above 0")
        for path, what in ((self.solution, "SOLUTION"), (self.ref, "--ref")):
            if not path.is_file():
                raise UsageError(f"{what}: there is no file {path}")
        if self.solution.resolve() == self.ref.resolve():
            raise UsageError(f"SOLUTION and --ref are the same file, {self.ref}; nothing would be compared")
        object.__setattr__(self, "implementation", choose_language(self.implementation, self.solution).value)

    def _require_words(self) -> None:
        """Refuse names that nothing here bears, before anything is built."""
        from kernelmark.timing.timers import TIMERS

        methods = (*TIMING_METHODS, *(entry.name for entry in TIMERS))
        if self.timing_method is not None and self.timing_method not in methods:
            near = suggestion(self.timing_method, methods, there_are="there are")
            raise UsageError(f"--timing-method={self.timing_method}: there is no such instrument; {near}")
        if not _ARCH.fullmatch(self.arch):
            raise UsageError(f"--arch={self.arch}: give an architecture such as sm_90 or sm_90a, or auto")
        if not _DEVICE.fullmatch(self.device):
            raise UsageError(f"--device={self.device}: give a device such as cpu, cuda or cuda:1, or auto")
        blank = [name for name, value in self.values.items() if not value.strip()]
        if blank:
            raise UsageError(f"--{blank[0]}= has no value; write --{blank[0]}=VALUE")

    @property
    def blocks(self) -> int:
        """Into how many blocks the trials divide."""
        found = _blocks_of(self.num_trials)
        assert found is not None  # it is refused otherwise
        return found

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

    def to_json(self) -> str:
        """Write it for the worker."""
        return json.dumps(dataclasses.asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Request:
        """Read what :meth:`to_json` wrote."""
        told: dict[str, Any] = json.loads(text)
        told["compile_flags"] = tuple(told["compile_flags"])
        return cls(**told)


_LEAST = {
    "num_warmup": 0,
    "num_trials": FEWEST_TRIALS,
    "discard_first": 0,
    "prewarm_calls": 0,
    "ptr_size": 0,
    "gpu": 0,
    "seed": 0,
}


def _require_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        option = f"--{name.replace('_', '-')}"
        raise UsageError(f"{option}={value}: give a whole number of at least {least}")


def _blocks_of(trials: int) -> int | None:
    """Give the number of blocks, as near ten as can be, into which ``trials`` divide; ``None`` where none will do."""
    pairs, odd = divmod(trials, 2)
    if odd:
        return None
    fitting = [each for each in range(min(_FEWEST_BLOCKS, pairs), _MOST_BLOCKS + 1) if pairs % each == 0]
    return min(fitting, key=lambda each: (abs(each - _BLOCKS), -each), default=None)


def _require_blocks(trials: int) -> None:
    if _blocks_of(trials) is not None:
        return
    below = next((each for each in range(trials, FEWEST_TRIALS - 1, -1) if _blocks_of(each)), None)
    above = next(each for each in itertools.count(trials) if _blocks_of(each))
    nearest = " or ".join(str(each) for each in (below, above) if each is not None)
    raise UsageError(
        f"--num-trials={trials}: the samples are taken in {_FEWEST_BLOCKS} to {_MOST_BLOCKS} blocks of two equal"
        f" passes, and {trials} do not divide into such; the nearest that do are {nearest}"
    )


def _require_tolerance(name: str, value: float | None) -> None:
    if value is not None and not (math.isfinite(value) and value >= 0):
        raise UsageError(f"--{name}={value}: give a number of at least 0")
