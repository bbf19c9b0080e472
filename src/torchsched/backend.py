"""The ``torch.compile`` backend ``kernelmark-mlir``: each graph through the same import, schedule and engine.

Installed, it needs no import of this package: ``torch.compile(model, backend="kernelmark-mlir")``. What a graph writes
to its inputs, aliases and gradients are torch's AOTAutograd's to work out; what arrives here is a function of tensors.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters

from kernelmark.errors import ModelError, ScheduleError, UnavailableError, UsageError
from kernelmark.text import suggestion
from torchsched.descriptors import find_schedule
from torchsched.execution import Compiled, compile_lowered
from torchsched.failures import Stage
from torchsched.graph_calls import (
    Boxed,
    boxed,
    call_compiled,
    has_symbols,
    outside_of_compilation,
    per_shape,
    require_cpu,
    without_onednn,
    without_passed_through,
)
from torchsched.ingress import import_graph
from torchsched.ingress.recurrent import WholeLayers
from torchsched.lowering import Observer, OnStep, lower, unheard
from torchsched.targets import Target, detect, override, require_here

__all__ = ["NAME", "Backend", "BackendOptions", "Direction", "Subgraph", "kernelmark_mlir"]

NAME = "kernelmark-mlir"
"""What ``torch.compile`` knows it as, and the name of its counts in ``torch._dynamo.utils.counters``."""


class Direction(StrEnum):
    """What a graph computes."""

    INFERENCE = "inference"
    FORWARD = "forward"
    """With what the backward graph will need among its results."""
    BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """What ``torch.compile(..., options={...})`` may say.

    Raises:
        UsageError: a value of the wrong type.
    """

    pipeline: str | tuple[str, ...] = "default"
    """A schedule's name or its file; several follow one another."""
    target: str | None = None
    feature: str | None = None
    threads: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    """Values for the schedule's parameters."""
    roots: tuple[Path, ...] = ()
    """Folders with schedules, before those of this package."""
    optimise: int | None = None
    """LLVM's level; by default what :data:`torchsched.execution.OPTIMISE` says."""
    most_shapes: int = 32
    """How many builds of a graph are kept whose sizes torch.compile left open, one for each set of sizes."""
    fallback: bool = False
    """Whether a graph that cannot be compiled runs as PyTorch runs it, with a warning; otherwise it is an error."""

    def __post_init__(self) -> None:
        if not isinstance(self.fallback, bool):
            raise UsageError(f"fallback={self.fallback!r}: give True or False")
        if not isinstance(self.params, Mapping):
            raise UsageError(f"params={self.params!r}: give a dict, such as {{'mr': 8}}")
        if not isinstance(self.pipeline, str):
            object.__setattr__(self, "pipeline", tuple(self.pipeline))
        object.__setattr__(self, "roots", tuple(Path(root) for root in self.roots))

    @classmethod
    def read(cls, options: Mapping[str, Any] | None) -> BackendOptions:
        """Take options as ``torch.compile`` hands them on.

        Raises:
            UsageError: there is no such option, or its value is of the wrong type.
        """
        known = [each.name for each in fields(cls)]
        for name in options or ():
            if name not in known:
                hint = suggestion(str(name), known, there_are="options")
                raise UsageError(f"{NAME} has no option {name!r}; {hint}")
        return cls(**(options or {}))

    def resolve_target(self) -> Target:
        """Find out what to make code for.

        Raises:
            UsageError: a name that there is none of.
            UnavailableError: this machine cannot run it.
        """
        target = override(detect(), name=self.target, feature=self.feature, threads=self.threads)
        require_here(target)
        return target


@dataclass(slots=True)
class Subgraph:
    """What became of one graph."""

    direction: Direction
    compiled: Compiled | None = None
    """None where it runs as PyTorch runs it."""
    reason: str = ""
    """Why it does."""
    seconds: dict[Stage, float] = field(default_factory=dict)
    """How long each stage took."""


class Backend:
    """A backend for ``torch.compile(model, backend=Backend(...))`` that keeps what it compiled, in order.

    Args:
        options: What to compile with.
        observer: Gets a name, which says the graph, and the module: as imported, and after each step.
        on_step: Called with each stage of each graph, and with each step of its schedule, as it begins.
    """

    def __init__(
        self,
        options: BackendOptions | None = None,
        *,
        observer: Observer | None = None,
        on_step: OnStep = unheard,
    ) -> None:
        self.options = options or BackendOptions()
        self.observer, self.on_step = observer, on_step
        self.subgraphs: list[Subgraph] = []
        self.target = self.options.resolve_target()

    def __call__(self, graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile one graph of dynamo's."""
        compiler = aot_autograd(
            inference_compiler=self._compiler(Direction.INFERENCE),
            fw_compiler=self._compiler(Direction.FORWARD),
            bw_compiler=self._compiler(Direction.BACKWARD),
            # What a graph writes to its inputs is part of it: torch would copy it there in a pass of its own.
            keep_inference_input_mutations=True,
        )
        with without_onednn(), nullcontext() if _wants_gradients(example_inputs) else WholeLayers():
            return compiler(graph, example_inputs)

    def _compiler(self, direction: Direction) -> Callable[..., Any]:
        def compile_graph(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Boxed:
            computed, assemble = without_passed_through(graph)
            if computed is None:
                return boxed(lambda values: assemble(values, ()))
            if has_symbols(example_inputs):
                # Sizes are left open: dynamo would give up after eight, and a graph for one size is faster.
                call = per_shape(
                    lambda values: self._compile(computed, values, direction), self.options.most_shapes
                )
            else:
                call = self._compile(computed, example_inputs, direction)
            return boxed(lambda values: assemble(values, call(values)))

        return compile_graph

    def _compile(
        self, graph: torch.fx.GraphModule, example_inputs: Sequence[Any], direction: Direction
    ) -> Boxed:
        """Build one graph for one set of sizes, or where that is allowed let PyTorch run it."""
        subgraph = Subgraph(direction)
        self.subgraphs.append(subgraph)
        try:
            with outside_of_compilation():
                call = self._build(graph, example_inputs, subgraph)
        except (ModelError, UnavailableError, UsageError) as error:
            if not self.options.fallback or isinstance(error, ScheduleError):
                raise
            subgraph.reason = str(error)
            counters[NAME]["fell back to eager"] += 1
            operations = sum(node.op == "call_function" for node in graph.graph.nodes)
            stopped = f" (operation: {error.op})" if isinstance(error, ModelError) and error.op else ""
            warnings.warn(
                f"{NAME}: a graph of {operations} operations ({direction}) runs as PyTorch runs it, since fallback"
                f" was asked for: {subgraph.reason.partition(chr(10))[0]}{stopped}",
                RuntimeWarning,
                stacklevel=2,
            )
            return boxed(lambda values: graph.forward(*values))
        counters[NAME]["compiled"] += 1
        return call

    def _build(self, graph: torch.fx.GraphModule, example_inputs: Sequence[Any], subgraph: Subgraph) -> Boxed:
        require_cpu(example_inputs)
        observer = self._observer(len(self.subgraphs), subgraph.direction)
        checks = subgraph.direction is not Direction.BACKWARD
        imported = self._timed(
            subgraph, Stage.IMPORT, lambda: import_graph(graph, example_inputs, checks=checks)
        )
        if observer is not None:
            observer(str(Stage.IMPORT), imported.module)
        options = self.options
        schedule = find_schedule(
            options.pipeline,
            imported.signature.main_element,
            self.target,
            roots=options.roots,
            values=options.params or None,
        )
        lowered = self._timed(
            subgraph,
            Stage.LOWER,
            lambda: lower(imported, schedule, schedule.target, observer=observer, on_step=self.on_step),
        )
        compiled = self._timed(
            subgraph, Stage.COMPILE, lambda: compile_lowered(lowered, optimise=options.optimise)
        )
        subgraph.compiled = compiled
        return call_compiled(imported, compiled)

    def _timed(self, subgraph: Subgraph, stage: Stage, work: Callable[[], Any]) -> Any:
        self.on_step(stage)
        begin = time.perf_counter()
        try:
            return work()
        finally:
            subgraph.seconds[stage] = time.perf_counter() - begin

    def _observer(self, number: int, direction: Direction) -> Observer | None:
        if self.observer is None:
            return None
        tell = self.observer
        return lambda name, module: tell(f"graph {number} ({direction}): {name}", module)


def kernelmark_mlir(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile one graph of dynamo's with the options that ``torch.compile`` was given."""
    return Backend(BackendOptions.read(options))(graph, example_inputs)


def _wants_gradients(example_inputs: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(
        isinstance(each, torch.Tensor) and each.requires_grad for each in example_inputs
    )
