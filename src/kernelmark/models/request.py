"""What is asked of a model file: inputs, schedule, what to compare with. Imports no torch, and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from kernelmark.device import resolve_device
from kernelmark.errors import UsageError
from kernelmark.models.tolerances import Asked
from kernelmark.records import Cache
from kernelmark.text.near import listing, suggestion
from torchsched.building import DEFAULT_PIPELINE
from torchsched.elements import FLOATS, Element
from torchsched.ingress.shapes import InputSpec, Literal
from torchsched.targets import Target, detect, override, require_here

__all__ = ["MIN_ITERATIONS", "Baseline", "Dump", "Mode", "ModelRequest", "parse_baselines"]

MIN_ITERATIONS = 2
"""Samples below which there is no block with two passes."""


class Mode(StrEnum):
    """How the model gets into the compiler."""

    IMPORT = "import"
    """As a whole, by torch.export."""
    TORCH_COMPILE = "torch-compile"
    """Graph by graph, as torch.compile hands them over."""


class Baseline(StrEnum):
    """What a compiled model, or a generated one, is timed next to."""

    EAGER = "eager"
    INDUCTOR = "inductor"


class Dump(StrEnum):
    """What may be written of the machine code, and the ending of its file."""

    ASSEMBLY = "s"
    OBJECT = "o"


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model, what to compile it with, and what to find out.

    Raises:
        UsageError: options that exclude each other, or a value that no run could use.
    """

    path: Path
    pipeline: tuple[str, ...] = (DEFAULT_PIPELINE,)
    target: str | None = None
    feature: str | None = None
    threads: int | None = None
    roots: tuple[Path, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    """Values of the schedule's parameters, as text."""
    device: str = "cpu"
    """``cpu``, a device of torch such as ``cuda:1``, or ``auto``; code is compiled for the CPU only."""
    element: Element | None = None
    """What floats are converted to; ``None`` leaves the model as it is."""
    inputs: tuple[InputSpec | Literal, ...] | None = None
    """``None`` takes the file's own."""
    output: InputSpec | None = None
    """What the model must give; ``None`` does not look."""
    init_args: tuple[Any, ...] | None = None
    mode: Mode = Mode.IMPORT
    benchmark: bool = False
    iterations: int = 100
    cache: Cache = Cache.COLD
    baselines: tuple[Baseline, ...] = tuple(Baseline)
    """Used only where it is benchmarked."""
    gflops: float | None = None
    """Billions of operations in a call; ``None`` counts those of its products and convolutions."""
    bytes: int | None = None
    """What a call must move; ``None`` takes arguments and results, once each."""
    tolerance: Asked = field(default_factory=Asked)
    second_draw: bool = True
    """Whether the answer is also checked on other inputs."""
    seed: int = 0
    out: Path | None = None
    """Folder to keep the run in."""
    dumps: tuple[Dump, ...] = ()

    def __post_init__(self) -> None:
        if not self.pipeline:
            raise UsageError("no pipeline is named")
        if self.element is not None and self.element not in FLOATS:
            raise UsageError(f"--dtype {self.element}: a model is converted to {listing(FLOATS)}")
        for name, value, least in (
            ("iterations", self.iterations, MIN_ITERATIONS),
            ("threads", self.threads, 1),
            ("seed", self.seed, 0),
            ("bytes", self.bytes, 1),
        ):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise UsageError(f"--{name} {value}: give a whole number of at least {least}")

    @property
    def name(self) -> str:
        """What the model is called: its file, without the ending."""
        return self.path.stem

    @property
    def case_id(self) -> str:
        """What is compared."""
        return f"{self.name} {self.element}" if self.element else self.name

    def resolve_device(self) -> str:
        """Give the device's own name.

        Raises:
            UsageError: it is not written like a device's.
        """
        return "cpu" if self.device == "cpu" else resolve_device(self.device)

    def resolve_target(self) -> Target:
        """Find out what to make code for.

        Raises:
            UsageError: a name that there is none of.
            UnavailableError: this machine cannot run it.
        """
        here = detect()
        target = override(here, name=self.target, feature=self.feature, threads=self.threads)
        require_here(target, here)
        return target


def parse_baselines(text: str) -> tuple[Baseline, ...]:
    """Read a list such as ``eager,inductor``; ``all`` and ``none`` are words of their own.

    Raises:
        UsageError: a name that there is none of.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if words == ["all"]:
        return tuple(Baseline)
    if words in ([], ["none"]):
        return ()
    for word in words:
        if word not in list(Baseline):
            hint = suggestion(word, [*Baseline, "all", "none"], there_are="baselines")
            raise UsageError(f"--baselines {text}: {word!r} is none; {hint}")
    return tuple(dict.fromkeys(Baseline(word) for word in words))
