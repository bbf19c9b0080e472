"""The compiler of :mod:`torchsched` as a contestant: a model as a whole, or graph by graph through torch.compile.

It knows stages, schedules and targets, which no other compiler has. Checking and timing are the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kernelmark.errors import KernelmarkError
from kernelmark.harness import Implementation
from kernelmark.models.compilers import Binder, Contestant, Subject, call_once, plain_call
from kernelmark.models.request import MLIR, Dump, Mode, ModelRequest
from kernelmark.models.state import State, plain_inputs
from kernelmark.text import counted, in_short
from torchsched.backend import Backend, BackendOptions
from torchsched.building import BuildOptions, Built, build
from torchsched.elements import Element
from torchsched.failures import Stage, failure
from torchsched.lowering import Observer, OnStep, unheard
from torchsched.packing import ALIGNMENT
from torchsched.parallel import loaded_openmp
from torchsched.signature import Role
from torchsched.targets import Target

if TYPE_CHECKING:
    from torchsched.execution import Compiled

__all__ = ["bound_code", "build_options", "compile_by_mlir", "facts_of_code"]


def compile_by_mlir(
    subject: Subject,
    target: Target,
    *,
    tell: Callable[[str], None] = lambda line: None,
    observer: Observer | None = None,
    on_step: OnStep = unheard,
) -> Contestant:
    """Compile a model for ``target`` as its request says, and write the machine code where that was asked for.

    Raises:
        ScheduleError: there is no such schedule, or it is malformed.
        ModelError: a stage refused the model.
        UnavailableError: torch-mlir is not installed, or this machine cannot run the code.
    """
    request = subject.request
    if request.mode is Mode.TORCH_COMPILE:
        backend = Backend(_backend_options(request, target), observer=observer, on_step=on_step)
        bind: Binder = _through_torch_compile(subject, backend)
        compiled = [each.compiled for each in backend.subgraphs if each.compiled is not None]
        seconds = _summed([each.seconds for each in backend.subgraphs])
    else:
        options = build_options(request, target)
        built = build(subject.model, subject.inputs, options, observer=observer, on_step=on_step)
        compiled, seconds = [built.compiled], _summed([built.seconds])
        bind = lambda inputs, state: bound_code(built, inputs, state)  # noqa: E731 - the other branch's has no name

    _dump(request, compiled, tell)
    threads = max((each.threads for each in compiled), default=1)
    return Contestant(MLIR, bind, facts_of_code(threads), seconds)


def facts_of_code(threads: int) -> dict[str, Any]:
    """Give what a report says of code that uses so many threads, which is one where nothing is worth another."""
    return {"threads": threads, **({"openmp": str(loaded_openmp())} if threads > 1 else {})}


def build_options(
    request: ModelRequest, target: Target, *, element: Element | None = None, values: Mapping[str, Any] = {}
) -> BuildOptions:
    """Give the options of a build; ``values`` of parameters stand before those of the request."""
    return BuildOptions(
        pipeline=request.pipeline,
        element=element or request.element,
        target=target,
        roots=request.roots,
        values={**request.values, **values},
    )


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


def _through_torch_compile(subject: Subject, backend: Backend) -> Binder:
    """Compile graph by graph, now.

    Raises:
        KernelmarkError: what the backend raised, without torch's wrapping of it.
        ModelImportError: torch.compile itself failed, or handed over nothing.
    """
    name = type(subject.model).__name__
    function: Any = torch.compile(subject.model, backend=backend)
    try:
        # otherwise LSTM and its kin run as PyTorch runs them
        with torch._dynamo.config.patch(allow_rnn=True):
            call_once(function, subject.state)
    except KernelmarkError:
        raise
    except Exception as error:
        if (own := _own_error(error)) is not None:
            raise own from error
        said = in_short(error)
        raise failure(Stage.IMPORT, f"torch.compile failed on {name}", diagnostics=said) from error
    count = len(backend.subgraphs)
    if count == 0:
        raise failure(
            Stage.IMPORT,
            f"torch.compile handed over no graph of {name}, so that all of it would run as PyTorch runs it; import it"
            " as a whole, without --torch-compile",
        )
    schedule = " then ".join(subject.request.pipeline)
    graphs = f"{counted(count, 'graph')} of torch.compile, {schedule} on {backend.target}"
    return lambda inputs, state: plain_call(function, state, backend=graphs)


def _backend_options(request: ModelRequest, target: Target) -> BackendOptions:
    return BackendOptions(
        pipeline=request.pipeline,
        target=request.target,
        feature=request.feature,
        threads=target.threads,
        params=request.values,
        roots=request.roots,
    )


def _own_error(error: BaseException | None) -> KernelmarkError | None:
    """Find the error of this package's that torch's dynamo wrapped."""
    while error is not None and not isinstance(error, KernelmarkError):
        error = getattr(error, "inner_exception", None) or error.__cause__
    return error


def _summed(each: Sequence[Mapping[Stage, float]]) -> dict[str, float]:
    stages = dict.fromkeys(stage for seconds in each for stage in seconds)
    return {stage: sum(seconds.get(stage, 0.0) for seconds in each) for stage in stages}


def _dump(request: ModelRequest, compiled: Sequence[Compiled], tell: Callable[[str], None]) -> None:
    """Write the machine code into the folder where the command was called."""
    for dump in request.dumps:
        for number, code in enumerate(compiled, start=1):
            part = f".{number}" if len(compiled) > 1 else ""
            path = Path(f"{request.name}{part}.{dump}")
            if dump is Dump.OBJECT:
                code.dump_object(path)
                tell(f"Object written to {path}")
            else:
                path.write_text(code.assembly(), encoding="utf-8")
                tell(f"Assembly written to {path}")
