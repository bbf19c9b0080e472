"""From a module to an exported program: ``torch.export`` with what it needs to see a model whole.

Knows torch and no MLIR. The program is functional: every parameter, buffer and held tensor is an argument, and
every value that the model writes is a result.
"""

from __future__ import annotations

import contextlib
import linecache
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._guards import tracing
from torch.export import ExportedProgram
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.graph_module import _loader as fx_sources
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from kernelmark.errors import ModelError
from torchsched.bindings import bindings
from torchsched.failures import Stage, captured_stderr, failure
from torchsched.ingress.decomposing import decompose
from torchsched.ingress.recurrent import WholeLayers
from torchsched.ingress.transformer_layers import fast_paths
from torchsched.ingress.upstream import decompositions

__all__ = ["Exported", "export_program", "place_of"]

aten = torch.ops.aten

MOST_CALLS = 20_000
"""Calls of torch functions in one ``forward``. Tracing takes about 3 ms for each, decomposing another 3, and
LLVM more than both: a recurrence of some thousand steps would take minutes and give code of megabytes."""

_exports = threading.RLock()
"""``torch.export`` keeps its state in the process."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A functional program, and which of its buffers are tensors that the model holds without registering them."""

    program: ExportedProgram
    held: frozenset[str]


def export_program(model: torch.nn.Module, inputs: Sequence[Any], *, training: bool, name: str) -> Exported:
    """Export ``model`` for inputs of these types; their values do not matter, and the model is left as it was.

    Raises:
        ModelImportError: torch cannot export it, or it draws random numbers.
    """
    with _exports, _quiet(), _alone(), _no_source_kept(), torch.no_grad(), _mode(model, training):
        with _held_as_buffers(model) as held, captured_stderr() as logged:
            try:
                program = _export(model, inputs, name)
            except ModelError:
                raise
            except Exception as error:
                # torch logs at length what the error says as well.
                logged.take()
                raise _export_failure(error, name) from error
        return Exported(program, held)


def _export(model: torch.nn.Module, inputs: Sequence[Any], name: str) -> ExportedProgram:
    with _Tracing(name):
        program = torch.export.export(model, _stand_ins(inputs), strict=False)
    _refuse_layouts(program, inputs, name)
    _reshape_for_view(program.graph_module)
    program = decompose(program, _decompositions())
    # Not before: a net of several layers, and attention, are seeded as a whole for a dropout that they may not do.
    _refuse_random(program, name)
    return program


def _reshape_for_view(graph: torch.fx.GraphModule) -> None:
    """Let no view depend on strides: what an operation is made of may lie otherwise in memory than its own result.

    Attention's result lies as batch, length, heads, width; that of what it is taken apart into does not, and a view
    of it that was seen to hold does not hold.
    """
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.target in (aten.view.default, aten._unsafe_view.default):
            node.target = aten.reshape.default
    graph.recompile()


def _refuse_layouts(program: ExportedProgram, inputs: Sequence[Any], name: str) -> None:
    """Refuse what reads memory behind a tensor's back, where the tensor may not lie there as it does in eager."""
    plain = all(
        each.is_contiguous() and not each.storage_offset()
        for each in pytree.tree_leaves(tuple(inputs))
        if isinstance(each, torch.Tensor)
    )
    for node in program.graph.nodes:
        if node.op != "call_function" or node.target not in _BY_LAYOUT:
            continue
        value = node.args[0].meta["val"]
        if not plain or not value.is_contiguous() or value.storage_offset():
            raise failure(
                Stage.IMPORT,
                f"{name} reads memory by strides, {tuple(value.stride())} here, and compiled code does not lay tensors"
                " out so; write it as slices, a transpose or an unfold",
                op=str(node.target).removesuffix(".default"),
                source=place_of(node),
            )


_BY_LAYOUT = (aten.as_strided.default, aten.as_strided_copy.default, aten.as_strided_scatter.default)


def _decompositions() -> dict[Any, Any]:
    return {**bindings("extras.fx_decomp_util").get_decomposition_table(), **fast_paths(), **decompositions()}


def _stand_ins(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Give inputs of the same types, each a tensor of its own.

    One tensor handed in twice would be exported as one: the program would read it in both places, and give wrong
    answers for two that differ.
    """
    return pytree.tree_map(_stand_in, tuple(inputs))


def _stand_in(value: Any) -> Any:
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        # Asking for the number makes torch.compile guard on it, as code of one size needs.
        return value.__bool__() if isinstance(value, torch.SymBool) else _number(value)
    if not isinstance(value, torch.Tensor):
        return value
    sizes = tuple(int(size) for size in value.shape)
    return torch.empty(sizes, dtype=value.dtype)


def _number(value: torch.SymInt | torch.SymFloat) -> int | float:
    return int(value) if isinstance(value, torch.SymInt) else float(value)


# --- what is set up around the export, and undone ----------------------------------------------------


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Step out of a ``torch.compile`` that is under way: its fake tensors and sizes are not this export's."""
    with _disable_current_modes(), tracing(None):
        yield


@contextlib.contextmanager
def _no_source_kept() -> Iterator[None]:
    """Let go of the source that torch.fx keeps for ever of each graph it makes, 17 KB an export, for tracebacks."""
    before = set(linecache.cache)
    try:
        yield
    finally:
        for key in [
            key for key in linecache.cache if key not in before and key.startswith("<eval_with_key>")
        ]:
            linecache.cache.pop(key, None)
            fx_sources.eval_cache.pop(key, None)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        # torch's own: copying a program copies tree specs, whose class says of itself that it is deprecated.
        warnings.filterwarnings("ignore", category=FutureWarning, message=r".*LeafSpec.*")
        # nn.LSTM assigns its list of weights, which are parameters and as such arguments already.
        warnings.filterwarnings("ignore", category=UserWarning, message=r"The tensor attributes? .* assigned")
        yield


@contextlib.contextmanager
def _mode(model: torch.nn.Module, training: bool) -> Iterator[None]:
    """Put ``model`` into training or evaluation mode; afterwards each of its modules is in its own again."""
    before = {module: module.training for module in model.modules()}
    model.train(training)
    try:
        yield
    finally:
        for module, was in before.items():
            module.training = was


@contextlib.contextmanager
def _held_as_buffers(model: torch.nn.Module) -> Iterator[frozenset[str]]:
    """Register tensors that are plain attributes as buffers meanwhile; gives their names.

    ``torch.export`` takes a plain tensor for a constant: it refuses to write it in place, and forgets a new one
    that ``forward`` assigns, so that a recurrent net would begin each call with its first state.
    """
    moved: list[tuple[torch.nn.Module, str, torch.Tensor]] = []
    names: set[str] = set()
    try:
        for path, module in model.named_modules():
            for name, value in list(vars(module).items()):
                if isinstance(value, torch.Tensor) and not hasattr(type(module), name):
                    del module.__dict__[name]
                    moved.append((module, name, value))
                    module.register_buffer(name, value, persistent=False)
                    names.add(f"{path}.{name}" if path else name)
        yield frozenset(names)
    finally:
        for module, name, value in moved:
            module._buffers.pop(name, None)
            module._non_persistent_buffers_set.discard(name)
            module.__dict__[name] = value


class _Tracing(WholeLayers):
    """Lets recurrent nets be one operation a layer, and stops where ``forward`` calls too much to compile."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.calls = 0

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # Not what torch asks of each parameter while it makes ready: 180 calls for each.
        counts = get_proxy_mode() is not None and getattr(func, "__name__", "") != "__get__"
        self.calls += counts
        # Once only: torch calls functions while it unwinds from this, too.
        if counts and self.calls == MOST_CALLS + 1:
            raise failure(
                Stage.IMPORT,
                f"{self.name} calls more than {MOST_CALLS} torch functions in one forward; a loop over time steps"
                " is unrolled, so give it fewer steps",
                source=_own_line(traceback.extract_stack()),
            )
        return super().__torch_function__(func, types, args, kwargs)


# --- what cannot be compiled --------------------------------------------------------------------------


def _refuse_random(program: ExportedProgram, name: str) -> None:
    for node in program.graph.nodes:
        tags = getattr(node.target, "tags", ())
        if node.op == "call_function" and torch.Tag.nondeterministic_seeded in tags and _draws(node):
            raise failure(
                Stage.IMPORT,
                f"{name} draws random numbers in forward, and compiled code would draw others than PyTorch does,"
                " so no answer could be checked; draw them outside and hand them in, or import in evaluation mode",
                op=str(node.target).removesuffix(".default"),
                source=place_of(node),
            )


def _draws(node: Any) -> bool:
    """Whether a call of an operation that may draw does: rrelu and dropout do where they are told to train."""
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.name in ("training", "train"):
            given = node.args[position] if position < len(node.args) else argument.default_value
            return node.kwargs.get(argument.name, given) is not False
    return True


def _export_failure(error: Exception, name: str) -> ModelError:
    text = f"{type(error).__name__}: {_first_lines(str(error))}"
    frames = list(traceback.extract_tb(error.__traceback__))
    hint = ""
    if "is mutated in the forward" in text:
        hint = (
            "; a tensor in a list or outside the module cannot be written: register it with register_buffer"
        )
    elif "data-dependent" in text or "DataDependent" in text:
        hint = "; sizes and branches must not depend on the values of tensors"
    source = _own_line(frames) or _own_line(_frames_in(str(error)))
    return failure(Stage.IMPORT, f"torch.export cannot export {name}: {text}{hint}", source=source)


def _first_lines(text: str) -> str:
    # What follows an empty line is advice on torch's own switches.
    return text.strip().partition("\n\n")[0] or "no message"


def place_of(node: torch.fx.Node) -> str | None:
    """Give ``file:line`` of the innermost frame of ``node`` that is the model's own, or else a library's."""
    return _own_line(_frames_in(node.stack_trace or ""))


def _frames_in(text: str) -> list[traceback.FrameSummary]:
    frames = []
    for line in text.splitlines():
        file, _, rest = line.strip().removeprefix('File "').partition('", line ')
        number = rest.partition(",")[0]
        if rest and number.isdigit():
            frames.append(traceback.FrameSummary(file, int(number), "forward", lookup_line=False))
    return frames


def _own_line(frames: Sequence[traceback.FrameSummary]) -> str | None:
    """Give ``file:line`` of the innermost frame that is the model's own; else a library's, and else torch's."""
    frames = [frame for frame in frames if _is_a_model_s(frame.filename)]
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    library = [frame for frame in frames if not frame.filename.startswith(_TORCH)]
    found = own or library or frames
    return f"{found[-1].filename}:{found[-1].lineno}" if found else None


_TORCH = str(Path(torch.__file__).parent)
_HERE = str(Path(__file__).parents[1])


def _is_a_model_s(file: str) -> bool:
    return not file.startswith((_HERE, "<")) and file not in (contextlib.__file__, threading.__file__)
