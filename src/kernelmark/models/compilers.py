"""What runs a model: PyTorch itself, a compiler that comes with torch or with kernelmark, or any that is installed.

A compiler is a function of a model and its inputs that gives what is called in the model's place. One more takes part
by an entry point::

    [project.entry-points."kernelmark.model_compilers"]
    mine = "my_package:compile_model"      # compile_model(model, inputs) -> callable

and is then ``--compiler mine``, or one of ``--baselines``. Checking and timing are the engine's, for all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

from kernelmark.device import is_out_of_memory
from kernelmark.harness import Implementation, Unavailable
from kernelmark.harness.baselines import compiled_by_inductor
from kernelmark.models.request import Baseline, ModelRequest, installed_compilers
from kernelmark.models.state import State, cloned
from kernelmark.text import in_short

__all__ = [
    "Binder",
    "Contestant",
    "ModelCompiler",
    "Subject",
    "call_once",
    "compile_with",
    "compute_float32_exactly",
    "exact_float32",
    "plain_call",
    "reference_of",
]

Function = Callable[..., Any]
Binder = Callable[[tuple[Any, ...], State], Implementation]
"""Makes an implementation of compiled code for inputs, and for the state that a call of it writes."""


class ModelCompiler(Protocol):
    """What an entry point names."""

    def __call__(self, model: torch.nn.Module, inputs: tuple[Any, ...], /) -> Function:
        """Give what is called with inputs of these types in the model's place; where it cannot, raise."""
        ...


@dataclass(frozen=True, slots=True)
class Subject:
    """One model, loaded and on its device: what every compiler is given."""

    request: ModelRequest
    model: torch.nn.Module
    inputs: tuple[Any, ...]
    state: State
    """What a call of the model writes."""
    device: str


@dataclass(frozen=True, slots=True)
class Contestant:
    """A model as one compiler has made it."""

    name: str
    bind: Binder
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What a report says of the code, beside what was asked for."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """What each stage of compiling took; none of it is in a call."""


def compile_with(name: str, subject: Subject) -> Contestant | Unavailable:
    """Make the contestant ``name``, now; or say why it cannot be had here.

    ``mlir`` is none of these: it has stages to tell of, and is made by :mod:`kernelmark.models.mlir`.
    """
    if name == Baseline.EAGER:
        return Contestant(name, _calls(subject.model, "torch eager"))
    if name == Baseline.INDUCTOR:
        found = compiled_by_inductor(subject.model, lambda function: call_once(function, subject.state))
        return (
            found
            if isinstance(found, Unavailable)
            else Contestant(name, _calls(found.function, "torch inductor"))
        )
    try:
        function: Function = installed_compilers()[name].load()(subject.model, subject.inputs)
        call_once(function, subject.state)
    except Exception as error:  # whatever a compiler raises: eager works, so it comes from compiling
        if is_out_of_memory(error):
            raise
        return Unavailable(f"{name} failed: {in_short(error)}")
    return Contestant(name, _calls(function, name))


def _calls(function: Function, backend: str) -> Binder:
    return lambda inputs, state: plain_call(function, state, backend=backend)


# --- calling -------------------------------------------------------------------------------------------


def reference_of(model: torch.nn.Module, state: State) -> Function:
    """Give the function whose answer counts: the model as PyTorch runs it, from the state it was loaded with."""
    if state.is_empty:
        return model

    def reference(*inputs: Any) -> Any:
        state.put_back()
        private = cloned(inputs)
        answer = {"out": model(*private), "state": state.after(private)}
        answer = pytree.tree_map(_detached, answer)
        state.put_back()
        return answer

    return reference


def plain_call(function: Function, state: State, *, backend: str) -> Implementation:
    """Call a function that takes the model's inputs; where it writes anything, on inputs of its own."""
    if state.is_empty:
        return Implementation(run=function, backend=backend)
    private = state.private_inputs()

    def run() -> Any:
        return {"out": function(*private), "state": state.after(private)}

    def reset() -> None:
        state.put_back()
        state.put_back_inputs(private)

    return Implementation(run=run, args=(), reset=reset, backend=backend)


def call_once(function: Function, state: State) -> None:
    """Call it and put back what it wrote."""
    private = state.private_inputs()
    with torch.no_grad():
        function(*private)
    state.put_back()
    state.put_back_inputs(private)


def compute_float32_exactly() -> dict[Any, bool]:
    """Let products and convolutions of f32 be computed in f32, and say for each of torch's parts how it was before.

    Torch takes TF32 for convolutions on CUDA devices, and eager, the reference, is then off itself: on an H200 three
    of KernelBench's 35 convolutions failed with 2.7 to 3.0 times what an answer may be off, and one read 122 % of
    what the device can do in f32.
    """
    parts: tuple[Any, ...] = (torch.backends.cudnn, torch.backends.cuda.matmul)
    before = {part: part.allow_tf32 for part in parts}
    for part in parts:
        part.allow_tf32 = False
    return before


@contextmanager
def exact_float32() -> Iterator[None]:
    """Compute f32 exactly for a while."""
    before = compute_float32_exactly()
    try:
        yield
    finally:
        for part, allowed in before.items():
            part.allow_tf32 = allowed


def _detached(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
