"""A model as a case of the engine: its inputs, its answer, its check on two draws, its work, and what a report says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from kernelmark.errors import UsageError, VerificationError
from kernelmark.harness import Case, Session, SessionOptions, make_plan, run_plan, use_session
from kernelmark.models.compilers import Contestant, Subject, reference_of
from kernelmark.models.request import ModelRequest
from kernelmark.models.state import State, plain_inputs
from kernelmark.records import Row
from kernelmark.roofline import Work
from kernelmark.verify import Exact, Policy
from kernelmark.verify.other_values import second_draw
from torchsched.elements import FLOATS, Element
from torchsched.graph_calls import without_onednn
from torchsched.ingress import InputSpec, LoadedModel
from torchsched.packing import ALIGNMENT
from torchsched.signature import TensorType

__all__ = [
    "Draws",
    "ModelWork",
    "check_on_second_draw",
    "count_work",
    "draw_twice",
    "main_element",
    "make_case",
    "request_facts",
    "require_outputs",
    "types_of",
]

_AGREES = 0.01
"""How far a stated count may lie from the counted one before it is told; formulas leave out a bias."""


@dataclass(frozen=True, slots=True)
class _Workload:
    """A model's inputs, its answer and how it is checked, as a case wants them."""

    inputs: tuple[Any, ...]
    reference: Callable[..., Any]
    declaration: Exact

    def gen_inputs(self) -> tuple[Any, ...]:
        """Give the inputs."""
        return self.inputs

    def verification(self) -> Exact:
        """Give the check."""
        return self.declaration


def make_case(
    subject: Subject,
    rule: Policy,
    facts: Mapping[str, Any],
    *,
    case_id: str | None = None,
    inputs: tuple[Any, ...] | None = None,
    state: State | None = None,
) -> Case:
    """Build the case of a model; ``facts`` stand in its report beside the types of its inputs.

    Args:
        subject: The model.
        rule: What decides how far an answer may be off.
        facts: What a report says.
        case_id: What is compared; by default what the request calls it.
        inputs: Other inputs than the model's first ones, with the ``state`` that belongs to them.
        state: What a call with them writes.
    """
    inputs, state = (subject.inputs, subject.state) if inputs is None or state is None else (inputs, state)
    reference = reference_of(subject.model, state)
    return Case(
        case_id or subject.request.case_id,
        lambda: _Workload(inputs, reference, Exact(tolerance=rule)),
        params={**types_of(inputs), **facts},
        seed=subject.request.seed,
    )


def types_of(inputs: Sequence[Any]) -> dict[str, str]:
    """Write each input's type, by its name."""
    return {f"input[{index}]": _described(each) for index, each in enumerate(inputs)}


def request_facts(request: ModelRequest, loaded: LoadedModel, device: str = "cpu") -> dict[str, Any]:
    """Give what was asked for, as a report shows it; schedules are of the CPU alone."""
    facts: dict[str, Any] = {}
    if loaded.init_args:
        facts["init_args"] = ", ".join(map(repr, loaded.init_args))
    if device != "cpu":
        facts["device"] = device
        if torch.device(device).type == "cuda":
            facts["tf32 in products"] = torch.backends.cuda.matmul.allow_tf32
            facts["tf32 in convolutions"] = torch.backends.cudnn.allow_tf32
        return facts
    facts["mode"] = request.mode.value
    facts["pipeline"] = " then ".join(request.pipeline)
    if request.values:
        facts["parameters"] = ", ".join(f"{name}={value}" for name, value in request.values.items())
    return facts


def main_element(model: torch.nn.Module, inputs: Sequence[Any]) -> Element:
    """Give the float type that most bytes of the model and its inputs have; f32 where there is none."""
    volume: dict[Element, int] = {}
    for each in (*model.parameters(), *model.buffers(), *pytree.tree_leaves(tuple(inputs))):
        if isinstance(each, torch.Tensor) and each.is_floating_point():
            element = Element.from_torch(each.dtype)
            volume[element] = volume.get(element, 0) + each.numel() * element.bytes
    known = [each for each in volume if each in FLOATS]
    return max(known, key=lambda each: volume[each], default=Element.F32)


def require_outputs(specs: Sequence[InputSpec], outputs: Sequence[TensorType]) -> None:
    """Check that a model gives what ``--output-shape`` says: as many tensors, of these sizes and types.

    Raises:
        UsageError: it gives something else.
    """
    alike = len(specs) == len(outputs) and all(
        spec.shape == found.shape and spec.element in (None, found.element)
        for spec, found in zip(specs, outputs, strict=True)
    )
    if not alike:
        said = ", ".join("x".join(map(str, (*spec.shape, *filter(None, [spec.element])))) for spec in specs)
        found = ", ".join(map(str, outputs)) or "nothing"
        raise UsageError(f"--output-shape says {said}, and the model gives {found}")


def _described(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)[:60]
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


# --- work ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelWork:
    """The work of one call, as the engine asks an op for it."""

    flops: int
    bytes: int
    element: Element
    note: str = ""
    """What a reader must know of the count."""

    @property
    def gflops(self) -> float | None:
        """Billions of operations; ``None`` where there are none to count."""
        return self.flops / 1e9 or None

    def eval_roofline(self) -> Work:
        """Give the work to the engine."""
        return Work(self.flops, self.bytes, str(self.element.torch).removeprefix("torch."))


def count_work(subject: Subject, element: Element) -> ModelWork:
    """Count the operations of products and convolutions, and the bytes of what goes in and out, once each.

    The model is called once. What the request states takes the place of what is counted.

    Args:
        subject: The model.
        element: The type that it computes in.
    """
    request, model, inputs = subject.request, subject.model, subject.state.private_inputs()
    # of a recurrent layer that is one call of oneDNN's, the counter sees nothing
    with torch.no_grad(), without_onednn(), FlopCounterMode(display=False) as counter:
        outputs = model(*inputs)
    moved = _bytes([*model.parameters(), *model.buffers()], inputs, outputs)
    subject.state.put_back()
    counted = counter.get_total_flops()
    stated = None if request.gflops is None else round(request.gflops * 1e9)
    return ModelWork(
        flops=counted if stated is None else stated,
        bytes=request.bytes or moved,
        element=element,
        note=_disagreement(stated, counted),
    )


def _bytes(*values: Any) -> int:
    tensors = {id(leaf): leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)}
    return max(1, sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()))


def _disagreement(stated: int | None, counted: int) -> str:
    if not stated or not counted or abs(stated - counted) <= _AGREES * counted:
        return ""
    return (
        f"{stated / 1e9:.6g} GFLOP are stated, and its products and convolutions have {counted / 1e9:.6g}"
        f" ({stated / counted:.3g} times as many); figures go by what is stated"
    )


MakeCase = Callable[[str, tuple[Any, ...], State], Case]


@dataclass(frozen=True, slots=True)
class Draws:
    """The second draw of the inputs, or why there is none."""

    second: tuple[Any, ...] | None
    why: str = ""

    def __str__(self) -> str:
        if self.second is not None:
            return "two draws"
        return f"one draw: {self.why}" if self.why else "one draw"


def draw_twice(subject: Subject, *, tell: Callable[[str], None] = lambda line: None) -> Draws:
    """Draw the inputs again, where that is wanted and the model has a finite answer to them; tell where it has not."""
    request = subject.request
    if not request.second_draw:
        return Draws(None)
    reference = reference_of(subject.model, subject.state)
    drawn, why = second_draw(reference, subject.inputs, seed=request.seed)
    if drawn is None:
        tell(f"checked on one draw of the inputs: {why}")
        return Draws(None, why)
    return Draws(plain_inputs(drawn, ALIGNMENT))


def check_on_second_draw(
    contestant: Contestant, subject: Subject, draws: Draws, make: MakeCase, keep: Callable[[Row], None]
) -> None:
    """Let the engine check a contestant on the second draw; where it is wrong, on the first before that is told.

    Args:
        contestant: What is checked.
        subject: The model.
        draws: Its inputs.
        make: Makes the case of this name for other inputs and their state.
        keep: Gets the rows of an answer that is wrong.

    Raises:
        VerificationError: it is wrong on a draw; the message says on which.
    """
    if draws.second is None:
        return

    def check(case_id: str, inputs: tuple[Any, ...], state: State) -> None:
        """Check, and time and record nothing.

        The calls on other values come before the check on the first draw, which is of the same code: a quarter of
        the calls of slow code, such as plain loops, is spared.
        """
        case = make(case_id, inputs, state)
        options = SessionOptions(device=subject.device, verify_only=True, ceilings=False, other_values=False)
        session = Session(options)
        try:
            with use_session(session):
                run_plan(make_plan(case, (contestant.name, contestant.bind(inputs, state)), {}), session)
        finally:
            case.release()

    case_id, state = subject.request.case_id, subject.state
    try:
        check(f"{case_id} (second draw)", draws.second, state.for_inputs(draws.second))
    except VerificationError as error:
        try:
            check(case_id, subject.inputs, state)
        except VerificationError as first:
            _keep_rows(first, keep)
            raise
        _keep_rows(error, keep)
        message = f"right on the first draw of the inputs, and on a second one: {error}"
        raise type(error)(message, comparison=error.comparison) from error.__cause__


def _keep_rows(error: VerificationError, keep: Callable[[Row], None]) -> None:
    for row in error.comparison or ():
        keep(row)
