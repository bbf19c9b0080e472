"""What one candidate is judged with, as the worker and the judge get it. Imports no torch, and runs nothing."""

from __future__ import annotations

import ast
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from kernelmark.errors import UsageError
from kernelmark.isolation import Limits
from kernelmark.kernelbench.suite import Sizes
from kernelmark.models.request import Baseline, parse_baselines, policy_for
from kernelmark.records import Cache
from kernelmark.verify import Policy, Tolerances
from torchsched.elements import FLOATS, Element

__all__ = ["CANDIDATE", "Baseline", "Job", "Judging", "Mode", "Settings", "parse_baselines"]

CANDIDATE = "candidate"
"""What a candidate's row is called."""
_LEAST_ITERATIONS = 4


class Mode(StrEnum):
    """The mode of the modules."""

    TRAIN = "train"
    """As they are made, which is how KernelBench runs them: batch norm takes its statistics from the batch."""
    EVAL = "eval"


@dataclass(frozen=True, slots=True)
class Settings:
    """What all candidates of a run are judged with.

    Raises:
        UsageError: a value that no run could use.
    """

    dtype: str = "f32"
    device: str = "auto"
    mode: Mode = Mode.TRAIN
    seed: int = 0
    """Of weights, and of the inputs that are timed."""
    seeds: int = 5
    """Draws of the inputs that are checked outside, after timing."""
    baselines: tuple[Baseline, ...] = tuple(Baseline)
    iterations: int = 100
    cache: Cache = Cache.COLD
    tolerance: float | None = None
    atol: float | None = None
    rtol: float | None = None

    def __post_init__(self) -> None:
        if self.element not in FLOATS:
            raise UsageError(f"--dtype {self.dtype}: a model is converted to {', '.join(FLOATS)}")
        for name, value, least in (
            ("seeds", self.seeds, 1),
            ("seed", self.seed, 0),
            ("iterations", self.iterations, _LEAST_ITERATIONS),
        ):
            if value < least:
                raise UsageError(f"--{name} {value}: give a whole number of at least {least}")
        Tolerances(self.tolerance, self.atol, self.rtol, source="the command line")

    @property
    def element(self) -> Element:
        """The element type of models and inputs."""
        return Element.parse(self.dtype)

    @property
    def policy(self) -> Policy:
        """What decides how far an answer may be off."""
        asked = Tolerances(self.tolerance, self.atol, self.rtol, source="the command line")
        return policy_for(asked, self.element)

    def for_problem(self, atol: float | None, rtol: float | None) -> Settings:
        """Give the settings with a problem's own tolerances, where nothing was asked for."""
        if atol is None or any(each is not None for each in (self.tolerance, self.atol, self.rtol)):
            return self
        return replace(self, atol=atol, rtol=rtol)


@dataclass(frozen=True, slots=True)
class Job:
    """One candidate and its problem."""

    folder: Path
    """Where the worker leaves its run, and its answers for the judge."""
    name: str
    candidate: Path
    problem: str
    model: Path
    inputs: str
    """As ``--input-shapes`` writes them."""
    init_args: str
    """As a Python literal, so that a tuple stays one on its way to another process."""
    settings: Settings
    extensions: Path
    """Where torch builds inline C++ and CUDA of this candidate."""
    drawn: tuple[int, ...] = ()
    """What the inputs of the second check are drawn with; only a judge's job has them."""

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What the model's class is called with."""
        return tuple(ast.literal_eval(self.init_args))

    @property
    def case_id(self) -> str:
        """What is compared."""
        return f"{self.problem.removesuffix('.py')} {self.settings.dtype}"


@dataclass(frozen=True, slots=True)
class Judging:
    """How the candidates of a run are judged."""

    root: Path
    """The tree that holds the problems' files."""
    out: Path
    settings: Settings
    sizes: Sizes = Sizes.SUITE
    limits: Limits = field(default_factory=lambda: Limits(time_s=300.0))

    @property
    def asked(self) -> dict[str, object]:
        """What was asked for, by the options' names."""
        baselines = ",".join(self.settings.baselines) or "none"
        return {"sizes": self.sizes, **asdict(self.settings), "baselines": baselines}
