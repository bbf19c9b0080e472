"""What one candidate is judged with, handed to the two processes as a file; and the names of what they leave.

Imports no torch, and runs nothing.
"""

from __future__ import annotations

import ast
import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from kernelmark.errors import UsageError
from kernelmark.kernelfile.handover import write_json
from kernelmark.models.request import Baseline, parse_baselines
from kernelmark.models.tolerances import Asked
from kernelmark.records import Cache
from torchsched.elements import FLOATS, Element

__all__ = ["CANDIDATE", "SEEDS", "Baseline", "Job", "Mode", "Settings", "parse_baselines"]

CANDIDATE = "candidate"
"""What a candidate's row is called."""
SEEDS = "seeds.json"
"""Where the parent puts what the inputs of the second check are drawn with, once the timing is over."""
_JOB = "job.json"
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
        Asked(self.tolerance, self.atol, self.rtol)

    @property
    def element(self) -> Element:
        """The element type of models and inputs."""
        return Element.parse(self.dtype)

    @property
    def asked(self) -> Asked:
        """What was asked of the tolerance."""
        return Asked(self.tolerance, self.atol, self.rtol)

    def for_problem(self, atol: float | None, rtol: float | None) -> Settings:
        """Give the settings with a problem's own tolerances, where nothing was asked for."""
        if atol is None or any(each is not None for each in (self.tolerance, self.atol, self.rtol)):
            return self
        return replace(self, atol=atol, rtol=rtol)


@dataclass(frozen=True, slots=True)
class Job:
    """One candidate and its problem."""

    folder: Path
    name: str
    candidate: Path
    problem: str
    model: Path
    inputs: str
    """As ``--input-shapes`` writes them."""
    init_args: tuple[Any, ...]
    settings: Settings
    extensions: Path
    """Where torch builds inline C++ and CUDA of this candidate."""
    drawn: tuple[int, ...] = ()
    """What the inputs of the second check are drawn with; only a judge's job has them."""
    answers: Path | None = None
    """The folder in which a worker has left its answers, for a judge."""

    @property
    def case_id(self) -> str:
        """What is compared."""
        return f"{self.problem.removesuffix('.py')} {self.settings.dtype}"

    def write(self) -> None:
        """Leave it for the child."""
        told = {
            **asdict(self),
            "folder": None,
            "candidate": str(self.candidate),
            "model": str(self.model),
            "extensions": str(self.extensions),
            "answers": str(self.answers) if self.answers else None,
            "init_args": repr(list(self.init_args)),
        }
        write_json(self.folder / _JOB, told)

    @classmethod
    def read(cls, folder: Path) -> Job:
        """Read what :meth:`write` left."""
        told = json.loads((folder / _JOB).read_text(encoding="utf-8"))
        settings = told["settings"]
        settings |= {
            "mode": Mode(settings["mode"]),
            "cache": Cache(settings["cache"]),
            "baselines": tuple(map(Baseline, settings["baselines"])),
        }
        return cls(
            **{
                **told,
                "folder": folder,
                "candidate": Path(told["candidate"]),
                "model": Path(told["model"]),
                "extensions": Path(told["extensions"]),
                "drawn": tuple(told["drawn"]),
                "answers": Path(told["answers"]) if told["answers"] else None,
                "init_args": tuple(ast.literal_eval(told["init_args"])),
                "settings": Settings(**settings),
            }
        )
