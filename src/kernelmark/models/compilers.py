"""What runs a model: PyTorch itself, a compiler that comes with torch or with kernelmark, or any that is installed.

A compiler is a function of a model and its inputs that gives what is called in the model's place. One more takes part
by an entry point::

    [project.entry-points."kernelmark.model_compilers"]
    mine = "my_package:compile_model"      # compile_model(model, inputs) -> callable

and is then ``--compiler mine``, or one of ``--baselines``. That of :mod:`torchsched` has stages, schedules and targets
besides. Checking and timing are the engine's, for all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kernelmark.device import is_out_of_memory
from kernelmark.errors import KernelmarkError
from kernelmark.harness import Implementation, Unavailable
from kernelmark.harness.baselines import compiled_by_inductor
from kernelmark.models.case import Binder, Contestant, Subject
from kernelmark.models.request import MLIR, Baseline, Dump, Mode, ModelRequest, installed_compilers
from kernelmark.models.state import State, plain_inputs
from kernelmark.text import counted, in_short
from torchsched.backend import Backend, BackendOptions
from torchsched.building import BuildOptions, Built, build
from torchsched.failures import Stage, failure
from torchsched.lowering import Observer, OnStep, unheard
from torchsched.parallel import loaded_openmp
from torchsched.signature import Role
from torchsched.targets import Target

if TYPE_CHECKING:
    from torchsched.execution import Compiled

__all__ = [
    "bound_code",
    "build_options",
    "compile_by_mlir",
    "compile_with",
    "compute_float32_exactly",
    "exact_float32",
    "facts_of_code",
]

Function = Callable[..., Any]


def compile_with(name: str, subject: Subject) -> Contestant | Unavailable:
    """Make the contestant ``name``, now; or say why it cannot be had here. ``mlir`` is none of these."""
    if name == Baseline.EAGER:
        return _calling(name, subject.model, "torch eager")
    if name == Baseline.INDUCTOR:
        found = compiled_by_inductor(subject.model, lambda function: _call_once(function, subject.state))
        return found if isinstance(found, Unavailable) else _calling(name, found.function, "torch inductor")
    try:
        function: Function = installed_compilers()[name].load()(subject.model, subject.state.inputs)
        _call_once(function, subject.state)
    except Exception as error:  # whatever a compiler raises: eager works, so it comes from compiling
        if is_out_of_memory(error):
            raise
        return Unavailable(f"{name} failed: {in_short(error)}")
    return _calling(name, function, name)


def _calling(name: str, function: Function, backend: str) -> Contestant:
    """Give what calls a function with the model's inputs; where it writes anything, with inputs of its own."""

    def bind(state: State) -> Implementation:
        if state.is_empty:
            return Implementation(run=function, backend=backend)
        private = state.private_inputs()

        def run() -> Any:
            return {"out": function(*private), "state": state.after(private)}

        return Implementation(run=run, args=(), reset=lambda: state.put_back(private), backend=backend)

    return Contestant(name, bind)


def _call_once(function: Function, state: State) -> None:
    """Call it and put back what it wrote."""
    private = state.private_inputs()
    with torch.no_grad():
        function(*private)
    state.put_back(private)


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


# --- by way of MLIR: a model as a whole, or graph by graph through torch.compile ------------------------


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
        options = BackendOptions(
            pipeline=request.pipeline,
            target=request.target,
            feature=request.feature,
            threads=target.threads,
            params=request.values,
            roots=request.roots,
        )
        backend = Backend(options, observer=observer, on_step=on_step)
        function = _through_torch_compile(subject, backend)
        compiled = [each.compiled for each in backend.subgraphs if each.compiled is not None]
        seconds = _summed([each.seconds for each in backend.subgraphs])
        graphs = f"{counted(len(backend.subgraphs), 'graph')} of torch.compile"
        bind = _calling(
            MLIR, function, f"{graphs}, {' then '.join(request.pipeline)} on {backend.target}"
        ).bind
    else:
        built = build(
            subject.model,
            subject.state.inputs,
            build_options(request, target),
            observer=observer,
            on_step=on_step,
        )
        compiled, seconds, bind = [built.compiled], _summed([built.seconds]), bound_code(built)
    _dump(request, compiled, tell)
    threads = max((each.threads for each in compiled), default=1)
    return Contestant(MLIR, bind, facts_of_code(threads), seconds)


def facts_of_code(threads: int) -> dict[str, Any]:
    """Give what a report says of code that uses so many threads, which is one where nothing is worth another."""
    return {"threads": threads, **({"openmp": str(loaded_openmp())} if threads > 1 else {})}


def build_options(request: ModelRequest, target: Target, values: Mapping[str, Any] = {}) -> BuildOptions:
    """Give the options of a build; ``values`` of parameters stand before those of the request."""
    return BuildOptions(
        pipeline=request.pipeline,
        element=request.element,
        target=target,
        roots=request.roots,
        values={**request.values, **values},
    )


def bound_code(built: Built) -> Binder:
    """Bind compiled code to the inputs of a state: a call passes one packed pointer, and gives the same tensors."""
    imported, signature = built.imported, built.imported.signature

    def bind(state: State) -> Implementation:
        arguments = [
            tensor if argument.role is Role.INPUT else plain_inputs([tensor])[0]
            for tensor, argument in zip(imported.arguments(state.inputs), signature.arguments, strict=True)
        ]
        bound = built.compiled.bind(arguments)
        outputs = imported.assemble(bound.results)
        if not state.is_empty:
            pairs = zip(signature.results, bound.results, strict=True)
            written = {result.writes: tensor for result, tensor in pairs if result.writes is not None}
            names = [argument.name for argument in signature.inputs]
            outputs = {"out": outputs, "state": state.after_results(written, names)}

        def run() -> Any:
            bound()
            return outputs

        schedule = f"{built.schedule} on {built.target}"
        return Implementation(run=run, args=(), owned_outputs=tuple(bound.results), backend=schedule)

    return bind


def _through_torch_compile(subject: Subject, backend: Backend) -> Function:
    """Compile graph by graph, now; what the backend raises comes without torch's wrapping of it."""
    name = type(subject.model).__name__
    function: Any = torch.compile(subject.model, backend=backend)
    try:
        # otherwise LSTM and its kin run as PyTorch runs them
        with torch._dynamo.config.patch(allow_rnn=True):
            _call_once(function, subject.state)
    except KernelmarkError:
        raise
    except Exception as error:
        own: BaseException | None = error
        while own is not None and not isinstance(own, KernelmarkError):
            own = getattr(own, "inner_exception", None) or own.__cause__
        if own is not None:
            raise own from error
        said = in_short(error)
        raise failure(Stage.IMPORT, f"torch.compile failed on {name}", diagnostics=said) from error
    if not backend.subgraphs:
        raise failure(
            Stage.IMPORT,
            f"torch.compile handed over no graph of {name}, so that all of it would run as PyTorch runs it; import it"
            " as a whole, without --torch-compile",
        )
    return function


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
            else:
                path.write_text(code.assembly(), encoding="utf-8")
            tell(f"{dump.name.capitalize()} written to {path}")
