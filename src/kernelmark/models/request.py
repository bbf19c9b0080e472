"""What is asked of a model file, and of a search over its schedule's parameters. Imports no torch, and runs nothing."""

from __future__ import annotations

import base64
import math
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from kernelmark.device import resolve_device
from kernelmark.errors import UsageError
from kernelmark.records import Cache
from kernelmark.text import listing, suggestion
from kernelmark.verify import Elementwise, Normalised, Policy, Tolerance, Tolerances
from torchsched.building import DEFAULT_PIPELINE
from torchsched.elements import FLOATS, Element
from torchsched.ingress.shapes import InputSpec, Literal
from torchsched.targets import Target, detect, override, require_here

__all__ = [
    "MLIR",
    "Baseline",
    "Dump",
    "Mode",
    "ModelRequest",
    "Show",
    "TuneRequest",
    "figure",
    "installed_compilers",
    "packed",
    "parse_baselines",
    "policy_for",
    "unpacked",
]

MLIR = "mlir"
"""The compiler that comes with kernelmark, :mod:`torchsched`, and what its row is called."""


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
        known = () if self.compiler is None else (MLIR, *Baseline, *installed_compilers())
        if self.compiler is not None and self.compiler not in known:
            hint = suggestion(self.compiler, known, there_are="compilers")
            raise UsageError(f"--compiler {self.compiler}: there is none; {hint}")
        if self.element is not None and self.element not in FLOATS:
            raise UsageError(f"--dtype {self.element}: a model is converted to {listing(FLOATS)}")
        _require_whole("iterations", self.iterations, 2)  # with fewer no block has two passes
        _require_whole("seed", self.seed, 0)
        _require_whole("threads", self.threads, 1)
        _require_whole("bytes", self.bytes, 1)
        if self.seed >= 2**63:
            raise UsageError(f"--seed {self.seed}: torch takes seeds up to {2**63 - 1}")

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
        return resolve_device(self.device)

    def compiler_on(self, device: str) -> str:
        """Give the compiler whose code is checked on ``device``.

        Raises:
            UsageError: something was asked of ``mlir`` that another compiler does not do.
        """
        compiler = self.compiler or (MLIR if device == "cpu" else Baseline.INDUCTOR.value)
        if compiler == MLIR:
            if device == "cpu":
                return compiler
            raise UsageError(f"--compiler {MLIR} with --device {device}: it makes code for the CPU only")
        only_mlir_obeys = {
            "torch-compile": self.mode is not Mode.IMPORT,
            "pipeline": self.pipeline != (DEFAULT_PIPELINE,),
            "param": self.values,
            "schedules": self.roots,
            "target": self.target is not None,
            "feature": self.feature is not None,
            "threads": device != "cpu" and self.threads,
            **{f"dump-{dump.name.lower()}": True for dump in self.dumps},
            **{show.value: True for show in self.shown},
        }
        where = f"--device {device}" if device != "cpu" else f"--compiler {compiler}"
        for option, given in only_mlir_obeys.items():
            if given:
                raise UsageError(
                    f"--{option} with {where}: that is for code made by way of MLIR, and {compiler} is what is"
                    " compiled with here; leave it out"
                )
        return compiler

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


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """One search.

    Raises:
        UsageError: a number that no search could use, or a model request that says how to run it.
    """

    model: ModelRequest
    """The model, its inputs, the schedule and its check; values given there are held."""
    search: Mapping[str, str | None] = field(default_factory=dict)
    """Parameters to search, with the values to try as text; nothing searches all that have choices."""
    candidates: int = 32
    budget_s: float = 600.0
    """Seconds for checking and racing; the confirmation is not counted."""
    limit_s: float = 60.0
    """Seconds that one candidate may take to be compiled and checked, and again to be compiled and measured."""
    seed: int = 0
    """What the order of the candidates is drawn with."""
    write: Path | None = None
    """Where the descriptor goes; by default into the folder of the run."""
    out: Path | None = None
    """Folder to keep the search in."""
    resume: bool = False

    def __post_init__(self) -> None:
        if self.model.mode is not Mode.IMPORT:
            raise UsageError("a search compiles the model as a whole; leave --torch-compile out")
        if self.model.device != "cpu":
            raise UsageError(f"--device {self.model.device}: schedules make code for the CPU")
        _require_whole("candidates", self.candidates, 2)
        _require_whole("seed", self.seed, 0)
        for name, seconds in (("budget", self.budget_s), ("limit", self.limit_s)):
            if not (math.isfinite(seconds) and seconds > 0):
                raise UsageError(f"--{name} {seconds}: give a number of seconds above 0")

    @property
    def folder(self) -> Path:
        """Where the search is kept."""
        pipeline = "-".join(Path(each).stem for each in self.model.pipeline)
        return self.out or Path("runs") / "tune" / f"{self.model.name}-{pipeline}"

    @property
    def descriptor(self) -> Path:
        """Where the descriptor goes."""
        return self.write or self.folder / "tuned.yaml"


def _require_whole(option: str, value: int | None, least: int) -> None:
    if value is not None and (type(value) is not int or value < least):
        raise UsageError(f"--{option} {value}: give a whole number of at least {least}")


def installed_compilers() -> Mapping[str, EntryPoint]:
    """Give the compilers that are installed beside torch's and kernelmark's own, by name."""
    found = entry_points(group="kernelmark.model_compilers")
    return {each.name: each for each in sorted(found, key=lambda each: each.name)}


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
    source = f"the whole output, by the model's type {element}"
    return Policy(asked=asked, file=Tolerances(rule=rule, source=source))


def figure(rule: Tolerance) -> str:
    """Write the rule as the line ``Tolerance: ...`` has it: its one figure, or both of them."""
    assert isinstance(rule, Elementwise | Normalised)
    if isinstance(rule, Elementwise) and rule.atol != rule.rtol:
        return f"atol={rule.atol:g} rtol={rule.rtol:g}"
    return f"{rule.rtol:g}"
