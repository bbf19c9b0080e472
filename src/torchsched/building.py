"""A model to machine code in one call: import, schedule, lower, compile; what each stage took is kept.

Knows the order of the stages and none of their work. Who runs or measures what comes out is a caller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torchsched.descriptors import Schedule, find_schedule
from torchsched.elements import Element
from torchsched.failures import Stage
from torchsched.lowering import Observer, OnStep, lower, unheard
from torchsched.targets import Target, detect, require_here

if TYPE_CHECKING:
    import torch

    from torchsched.execution import Compiled
    from torchsched.ingress import Imported

__all__ = ["DEFAULT_PIPELINE", "BuildOptions", "Built", "build"]

DEFAULT_PIPELINE = "default"
"""The pipeline for a model of which nothing is known."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How a model is compiled."""

    pipeline: tuple[str, ...] = (DEFAULT_PIPELINE,)
    """Schedules by name or file; several follow one another."""
    element: Element | None = None
    """What to look a schedule up for; by default the type that most of the model's bytes have."""
    target: Target | None = None
    """What the code is for; by default this machine."""
    roots: tuple[Path, ...] = ()
    """Folders with schedules that come before the shipped ones."""
    values: Mapping[str, object] = field(default_factory=dict)
    """Values of the schedule's parameters."""
    training: bool = False
    optimise: int | None = None
    """LLVM's level; by default what :data:`torchsched.execution.OPTIMISE` says."""

    def schedule_for(self, element: Element, target: Target) -> Schedule:
        """Look up and load the schedule."""
        return find_schedule(self.pipeline, element, target, roots=self.roots, values=self.values)


@dataclass(frozen=True, slots=True)
class Built:
    """A compiled model, and how it came about."""

    compiled: Compiled
    imported: Imported
    """Says how inputs map to arguments and results to what the model returns; its module has been lowered."""
    schedule: Schedule
    target: Target
    """What the code is for; the schedule may have left it fewer threads."""
    seconds: Mapping[Stage, float]
    """How long each stage took; none of it is in a call."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of a time must know of the code."""
        return self.target.notes


def build(
    model: torch.nn.Module,
    inputs: Sequence[Any],
    options: BuildOptions | None = None,
    *,
    observer: Observer | None = None,
    on_stage: Callable[[Stage], object] = lambda stage: None,
    on_step: OnStep = unheard,
) -> Built:
    """Compile ``model`` for inputs of these types.

    Args:
        model: The model; it is left as it was.
        inputs: What ``forward`` takes.
        options: Schedule, target, parameters.
        observer: Gets a stage's name and the module: as imported, then after each step.
        on_stage: Called with each stage as it begins.
        on_step: Called with each stage, and with each step of the schedule, as it begins.

    Raises:
        ScheduleError: there is no such schedule, or it is malformed.
        ModelError: a stage refused the model; the class says which.
        UnavailableError: torch-mlir is not installed, or this machine cannot run the code.
    """
    from torchsched.execution import compile_lowered
    from torchsched.ingress import import_model

    options = options or BuildOptions()
    here = detect()
    target = options.target or here
    require_here(target, here)
    if options.element is not None:
        options.schedule_for(
            options.element, target
        )  # what is wrong with it is said before the import's seconds
    seconds: dict[Stage, float] = {}

    def timed(stage: Stage, work: Callable[[], _T]) -> _T:
        on_stage(stage)
        on_step(stage)
        return _timed(seconds, stage, work)

    imported = timed(Stage.IMPORT, lambda: import_model(model, inputs, training=options.training))
    if observer is not None:
        observer(str(Stage.IMPORT), imported.module)
    schedule = options.schedule_for(options.element or imported.signature.main_element, target)
    target = schedule.target
    lowered = timed(
        Stage.LOWER, lambda: lower(imported, schedule, target, observer=observer, on_step=on_step)
    )
    compiled = timed(Stage.COMPILE, lambda: compile_lowered(lowered, optimise=options.optimise))
    return Built(compiled, imported, schedule, target, seconds)


def _timed(seconds: dict[Stage, float], stage: Stage, work: Callable[[], _T]) -> _T:
    begin = time.perf_counter()
    found = work()
    seconds[stage] = time.perf_counter() - begin
    return found
