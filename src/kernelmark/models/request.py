"""What is asked of a model file: inputs, compiler, tolerance, baselines. Imports no torch, and runs nothing."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from kernelmark.device import resolve_device
from kernelmark.errors import UsageError
from kernelmark.records import Cache
from kernelmark.text.near import listing, suggestion
from kernelmark.verify import Elementwise, Normalised, Policy, Tolerance, Tolerances
from torchsched.building import DEFAULT_PIPELINE
from torchsched.elements import FLOATS, Element
from torchsched.ingress.shapes import InputSpec, Literal
from torchsched.targets import Target, detect, override, require_here

__all__ = [
    "MIN_ITERATIONS",
    "MLIR",
    "Baseline",
    "Dump",
    "Mode",
    "ModelRequest",
    "Show",
    "figure",
    "installed_compilers",
    "packed",
    "parse_baselines",
    "policy_for",
    "unpacked",
]

COMPILERS = "kernelmark.model_compilers"
"""The group of entry points that other compilers are found by."""

MLIR = "mlir"
"""The compiler that comes with kernelmark, :mod:`torchsched`, and what its row is called."""
MIN_ITERATIONS = 2
"""Samples below which there is no block with two passes."""
LARGEST_SEED = 2**63 - 1
"""What torch's generators take."""


class Mode(StrEnum):
    """How the model gets into the compiler."""

    IMPORT = "import"
    """As a whole, by torch.export."""
    TORCH_COMPILE = "torch-compile"
    """Graph by graph, as torch.compile hands them over."""


class Baseline(StrEnum):
    """What a compiled model, or a generated one, is timed next to, without what is installed besides."""

    EAGER = "eager"
    INDUCTOR = "inductor"


class Show(StrEnum):
    """Which modules of the compiler are written as the model goes through it."""

    ORIGINAL = "print-original-module"
    """As imported."""
    OPTIMISED = "print-optimized-module"
    """As it is after the last step."""
    AFTER_ALL = "print-mlir-after-all"
    """After every step."""


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
    compiler: str | None = None
    """What is checked against eager: ``mlir``, ``inductor``, or one that is installed
    (:mod:`kernelmark.models.compilers`); ``None`` takes ``mlir`` on the CPU and ``inductor`` elsewhere."""
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
    outputs: tuple[InputSpec, ...] | None = None
    """What the model must give, a tensor each; ``None`` does not look."""
    init_args: tuple[Any, ...] | None = None
    mode: Mode = Mode.IMPORT
    benchmark: bool = False
    iterations: int = 100
    cache: Cache = Cache.COLD
    baselines: tuple[str, ...] = tuple(Baseline)
    """Used only where it is benchmarked."""
    gflops: float | None = None
    """Billions of operations in a call; ``None`` counts those of its products and convolutions."""
    bytes: int | None = None
    """What a call must move; ``None`` takes arguments and results, once each."""
    tolerance: Tolerances = field(default_factory=Tolerances)
    second_draw: bool = True
    """Whether the answer is also checked on other inputs."""
    seed: int = 0
    out: Path | None = None
    """Folder to keep the run in."""
    dumps: tuple[Dump, ...] = ()
    shown: tuple[Show, ...] = ()

    def __post_init__(self) -> None:
        if not self.pipeline:
            raise UsageError("no pipeline is named")
        if self.compiler is not None and self.compiler not in (
            known := [MLIR, *Baseline, *installed_compilers()]
        ):
            hint = suggestion(self.compiler, known, there_are="compilers")
            raise UsageError(f"--compiler {self.compiler}: there is none; {hint}")
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
        if self.seed > LARGEST_SEED:
            raise UsageError(f"--seed {self.seed}: torch takes seeds up to {LARGEST_SEED}")

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

    def compiler_on(self, device: str) -> str:
        """Give the compiler whose code is checked on ``device``.

        Raises:
            UsageError: something was asked of ``mlir`` that another compiler does not do.
        """
        compiler = self.compiler or (MLIR if device == "cpu" else Baseline.INDUCTOR.value)
        if compiler == MLIR and device == "cpu":
            return compiler
        if compiler == MLIR:
            raise UsageError(f"--compiler {MLIR} with --device {device}: it makes code for the CPU only")
        where = f"--device {device}" if device != "cpu" else f"--compiler {compiler}"
        for option, value, default in self._of_mlir(device):
            if value != default:
                raise UsageError(
                    f"{option} with {where}: that is for code made by way of MLIR, and {compiler} is what is"
                    " compiled with here; leave it out"
                )
        return compiler

    def _of_mlir(self, device: str) -> Iterable[tuple[str, Any, Any]]:
        """Give each option that only compiling by way of MLIR obeys, what was asked, and what it is otherwise."""
        yield "--torch-compile", self.mode, Mode.IMPORT
        yield "--pipeline", self.pipeline, (DEFAULT_PIPELINE,)
        yield "--param", dict(self.values), {}
        yield "--schedules", self.roots, ()
        yield "--target", self.target, None
        yield "--feature", self.feature, None
        if device != "cpu":
            yield "--threads", self.threads, None
        for dump in Dump:
            yield f"--dump-{dump.name.lower()}", dump in self.dumps, False
        for show in Show:
            yield f"--{show}", show in self.shown, False

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


def installed_compilers() -> Mapping[str, EntryPoint]:
    """Give the compilers that are installed beside torch's and kernelmark's own, by name."""
    return {each.name: each for each in sorted(entry_points(group=COMPILERS), key=lambda each: each.name)}


def packed(value: object) -> str:
    """Write a request, or what holds one, as text for another process of this machine and this version.

    JSON has no tuples, and arguments of a constructor may be such.
    """
    return base64.b85encode(pickle.dumps(value)).decode()


def unpacked(text: str) -> Any:
    """Read what :func:`packed` wrote."""
    return pickle.loads(base64.b85decode(text))


def parse_baselines(text: str) -> tuple[str, ...]:
    """Read a list such as ``eager,inductor``, or of compilers that are installed; ``all`` are the first two.

    Raises:
        UsageError: a name that there is none of.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if words == ["all"]:
        return tuple(Baseline)
    if words in ([], ["none"]):
        return ()
    for word in words:
        if word not in list(Baseline) and word not in (others := installed_compilers()):
            hint = suggestion(word, [*Baseline, *others, "all", "none"], there_are="baselines")
            raise UsageError(f"--baselines {text}: {word!r} is none; {hint}")
    return tuple(dict.fromkeys(Baseline(word) if word in list(Baseline) else word for word in words))


def policy_for(asked: Tolerances, element: Element) -> Policy:
    """Give what decides the rule of each output of a model that computes in ``element``."""
    rule = Policy().for_dtype(element.torch).rule
    return Policy(
        asked=asked, file=Tolerances(rule=rule, source=f"the whole output, by the model's type {element}")
    )


def figure(rule: Tolerance) -> str:
    """Write the rule as the line ``Tolerance: ...`` has it: its one figure, or both of them."""
    if isinstance(rule, Elementwise):
        return f"{rule.rtol:g}" if rule.atol == rule.rtol else f"atol={rule.atol:g} rtol={rule.rtol:g}"
    assert isinstance(rule, Normalised)
    return f"{rule.rtol:g}"
