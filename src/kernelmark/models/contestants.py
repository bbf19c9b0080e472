"""The ways to run one model: as compiled code with its pointers packed, through torch.compile, and as PyTorch does.

Each becomes an :class:`kernelmark.harness.Implementation`; checking and timing them is the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernelmark.errors import KernelmarkError
from kernelmark.harness import Implementation, Unavailable
from kernelmark.models.state import State, cloned, plain_inputs
from kernelmark.text import in_short
from torchsched.backend import Backend
from torchsched.building import Built
from torchsched.failures import Stage, failure
from torchsched.packing import ALIGNMENT
from torchsched.signature import Role

__all__ = [
    "bound_code",
    "compiled_by_inductor",
    "inductor",
    "plain_call",
    "reference_of",
    "through_torch_compile",
]

Function = Callable[..., Any]


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


def bound_code(built: Built, inputs: Sequence[Any], state: State) -> Implementation:
    """Bind compiled code to ``inputs``: a call passes one packed pointer, and gives the same tensors each time.

    Raises:
        ModelRunError: an input that the code does not take.
    """
    imported, signature = built.imported, built.imported.signature
    arguments = [
        tensor if argument.role is Role.INPUT else plain_inputs([tensor], ALIGNMENT)[0]
        for tensor, argument in zip(imported.arguments(inputs), signature.arguments, strict=True)
    ]
    bound = built.compiled.bind(arguments)
    outputs = imported.assemble(bound.results)
    if not state.is_empty:
        written = {
            result.writes: tensor
            for result, tensor in zip(signature.results, bound.results, strict=True)
            if result.writes is not None
        }
        names = [argument.name for argument in signature.inputs]
        outputs = {"out": outputs, "state": state.after_results(written, names)}

    def run() -> Any:
        bound()
        return outputs

    schedule = f"{built.schedule} on {built.target}"
    return Implementation(run=run, args=(), owned_outputs=tuple(bound.results), backend=schedule)


def through_torch_compile(
    model: torch.nn.Module, backend: Backend, state: State
) -> tuple[Implementation, Function]:
    """Compile ``model`` graph by graph, now; give the implementation, and the function that it calls.

    Raises:
        KernelmarkError: what the backend raised, without torch's wrapping of it.
        ModelImportError: torch.compile itself failed, or handed over nothing.
    """
    function: Any = torch.compile(model, backend=backend)
    try:
        with torch._dynamo.config.patch(
            allow_rnn=True
        ):  # otherwise LSTM and its kin run as PyTorch runs them
            _call_once(function, state)
    except KernelmarkError:
        raise
    except Exception as error:
        if (own := _own_error(error)) is not None:
            raise own from error
        raise failure(
            Stage.IMPORT, f"torch.compile failed on {type(model).__name__}", diagnostics=in_short(error)
        ) from error
    count = len(backend.subgraphs)
    if count == 0:
        raise failure(
            Stage.IMPORT,
            f"torch.compile handed over no graph of {type(model).__name__}, so that all of it would run as PyTorch"
            " runs it; import it as a whole, without --torch-compile",
        )
    graphs = f"{count} graph{'' if count == 1 else 's'} of torch.compile"
    pipeline = backend.options.pipeline
    schedule = pipeline if isinstance(pipeline, str) else " then ".join(pipeline)
    return plain_call(function, state, backend=f"{graphs}, {schedule} on {backend.target}"), function


def inductor(model: torch.nn.Module, state: State) -> Implementation | Unavailable:
    """Compile ``model`` with torch's own compiler, now; or say why that cannot be had here."""
    function = compiled_by_inductor(model, state)
    if isinstance(function, Unavailable):
        return function
    return plain_call(function, state, backend="torch inductor")


def compiled_by_inductor(model: torch.nn.Module, state: State) -> Function | Unavailable:
    """Give the function that torch's own compiler makes of ``model``; or say why that cannot be had here."""
    function: Any = torch.compile(model)
    try:
        _call_once(function, state)
        _call_once(function, state)  # guards on what the first call made are compiled for in the second
    except Exception as error:  # noqa: BLE001 - eager works, so whatever this is comes from compiling
        return Unavailable(f"torch.compile failed: {in_short(error)}")
    return function


def _call_once(function: Function, state: State) -> None:
    private = state.private_inputs()
    with torch.no_grad():
        function(*private)
    state.put_back()
    state.put_back_inputs(private)


def _own_error(error: BaseException | None) -> KernelmarkError | None:
    """Find the error of this package's that torch's dynamo wrapped."""
    while error is not None and not isinstance(error, KernelmarkError):
        error = getattr(error, "inner_exception", None) or error.__cause__
    return error


def _detached(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
