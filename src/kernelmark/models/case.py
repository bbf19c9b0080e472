"""A model as a case of the engine: loaded, with its inputs, its answer, its check on two draws, its work and facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from kernelmark import harness
from kernelmark.device import is_out_of_memory
from kernelmark.errors import OutOfMemoryError, UsageError, VerificationError
from kernelmark.models.request import ModelRequest, policy_for
from kernelmark.models.state import State, cloned, plain_inputs
from kernelmark.records import Check, Note, Role, Row
from kernelmark.roofline import Work
from kernelmark.text import in_short
from kernelmark.verify import Exact, Policy
from kernelmark.verify.other_values import second_draw
from torchsched.elements import FLOATS, Element
from torchsched.graph_calls import without_onednn
from torchsched.ingress import InputSpec, LoadedModel, load_model
from torchsched.signature import TensorType

__all__ = [
    "Binder",
    "Contestant",
    "Subject",
    "check_on_second_draw",
    "compare",
    "count_work",
    "draw_twice",
    "load_asked",
    "load_subject",
    "main_element",
    "make_case",
    "moved",
    "require_outputs",
    "told_of_memory",
    "types_of",
    "untimed_row",
]

Binder = Callable[[State], harness.Implementation]
"""Makes an implementation of compiled code for the inputs of a state, and for what a call of it writes."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A model as one compiler has made it."""

    name: str
    bind: Binder
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What a report says of the code, beside what was asked for."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """What each stage of compiling took; none of it is in a call."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One model, loaded and on its device: what every compiler is given."""

    request: ModelRequest
    model: torch.nn.Module
    state: State
    """The inputs, and what a call of the model writes."""
    device: str = "cpu"
    init_args: tuple[Any, ...] = ()
    """What the model was made with."""

    @property
    def element(self) -> Element:
        """The type that it computes in."""
        return self.request.element or main_element(self.model, self.state.inputs)

    @property
    def policy(self) -> Policy:
        """What decides how far an answer may be off."""
        return policy_for(self.request.tolerance, self.element)

    def facts(self) -> dict[str, Any]:
        """Give what was asked for, as a report shows it; schedules are of the CPU alone."""
        request, facts = self.request, dict[str, Any]()
        if self.init_args:
            facts["init_args"] = ", ".join(map(repr, self.init_args))
        if self.device == "cpu":
            facts |= {"mode": request.mode.value, "pipeline": " then ".join(request.pipeline)}
            if request.values:
                facts["parameters"] = ", ".join(f"{name}={value}" for name, value in request.values.items())
            return facts
        facts["device"] = self.device
        if torch.device(self.device).type == "cuda":
            facts["tf32 in products"] = torch.backends.cuda.matmul.allow_tf32
            facts["tf32 in convolutions"] = torch.backends.cudnn.allow_tf32
        return facts

    def reference(self, state: State) -> Callable[..., Any]:
        """Give the function whose answer counts: the model as PyTorch runs it, from the state it was loaded with."""
        if state.is_empty:
            return self.model

        def reference(*inputs: Any) -> Any:
            state.put_back()
            private = cloned(inputs)
            answer = {"out": self.model(*private), "state": state.after(private)}
            answer = pytree.tree_map_only(torch.Tensor, lambda leaf: leaf.detach().clone(), answer)
            state.put_back()
            return answer

        return reference


# --- loading -------------------------------------------------------------------------------------------


def load_asked(request: ModelRequest) -> LoadedModel:
    """Load a request's model onto the CPU.

    Raises:
        UsageError: the file lacks what it must hold, or its own code raised.
    """
    return load_model(
        request.path,
        inputs=request.inputs,
        init_args=request.init_args,
        element=request.element,
        seed=request.seed,
    )


def load_subject(request: ModelRequest, device: str = "cpu") -> Subject:
    """Load a request's model and move it to ``device``.

    Raises:
        UsageError: the file lacks what it must hold, its own code raised, or the model gives something else than the
            request says.
    """
    loaded = load_asked(request)
    if device != "cpu":
        loaded = moved(loaded, device)
    state = State(loaded.model, plain_inputs(loaded.inputs))
    if request.outputs is not None:
        require_outputs(request.outputs, state.outputs)
    return Subject(request, loaded.model, state, device, loaded.init_args)


def moved(loaded: LoadedModel, device: str) -> LoadedModel:
    """Give the model and its inputs on ``device``: parameters, buffers, and tensors that are plain attributes."""

    def move(value: Any) -> Any:
        return pytree.tree_map_only(torch.Tensor, lambda leaf: leaf.to(device), value)

    model = loaded.model.to(device)
    for module in model.modules():
        for name, value in vars(module).items():
            if not name.startswith("_") and any(
                isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value)
            ):
                setattr(module, name, move(value))
    return replace(loaded, model=model, inputs=move(loaded.inputs))


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


@contextmanager
def told_of_memory(name: str) -> Iterator[None]:
    """Turn whatever an allocator raises inside into one error, which says what to do.

    Raises:
        OutOfMemoryError: memory ran out.
    """
    try:
        yield
    except VerificationError:
        raise  # an implementation that ran out of memory has its row
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and not is_out_of_memory(cause):
            cause = cause.__cause__
        if cause is None:
            raise
        raise OutOfMemoryError(
            f"{name}: memory ran out ({in_short(cause)}); give it smaller --input-shapes, or more memory"
        ) from error


def main_element(model: torch.nn.Module, inputs: Sequence[Any]) -> Element:
    """Give the float type that most bytes of the model and its inputs have; f32 where there is none."""
    volume = Counter[Element]()
    for each in (*model.parameters(), *model.buffers(), *pytree.tree_leaves(tuple(inputs))):
        if isinstance(each, torch.Tensor) and each.is_floating_point():
            element = Element.from_torch(each.dtype)
            if element in FLOATS:
                volume[element] += each.numel() * element.bytes
    return max(volume, key=volume.__getitem__, default=Element.F32)


# --- cases ---------------------------------------------------------------------------------------------


def make_case(
    subject: Subject, facts: Mapping[str, Any], *, case_id: str | None = None, state: State | None = None
) -> harness.Case:
    """Build the case of a model; ``facts`` stand in its report beside the types of its inputs.

    Args:
        subject: The model.
        facts: What a report says.
        case_id: What is compared; by default what the request calls it.
        state: Other inputs than the model's first ones, and what a call with them writes.
    """
    state = state or subject.state
    workload = SimpleNamespace(
        gen_inputs=lambda: state.inputs,
        reference=subject.reference(state),
        verification=lambda: Exact(tolerance=subject.policy),
    )
    return harness.Case(
        case_id or subject.request.case_id,
        lambda: workload,
        params={**types_of(state.inputs), **facts},
        seed=subject.request.seed,
    )


def types_of(inputs: Sequence[Any]) -> dict[str, str]:
    """Write each input's type, by its name."""

    def described(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        return repr(value)[:60]

    return {f"input[{index}]": described(each) for index, each in enumerate(inputs)}


def compare(
    case: harness.Case,
    contestants: Mapping[str, object],
    session: harness.Session,
    *,
    work: Work | None = None,
) -> harness.Comparison:
    """Let the engine check the contestants of a case, and time them where the session does; the first is ours."""
    (name, ours), *others = contestants.items()
    assert isinstance(ours, harness.Implementation)
    op = None if work is None else SimpleNamespace(eval_roofline=lambda: work)
    try:
        with harness.use_session(session):
            return harness.run_plan(harness.make_plan(case, (name, ours), dict(others)), session, op=op)
    finally:
        case.release()


def untimed_row(
    case: harness.Case, name: str, check: Check, note: Note, *, role: Role = Role.OURS, **more: Any
) -> Row:
    """Give the row of an implementation that the engine does not come to; ``more`` are parameters."""
    return Row(
        case=case.id,
        implementation=name,
        role=role,
        check=check,
        note=note,
        params={**case.params, **more},
        seed=case.seed,
    )


def draw_twice(
    subject: Subject, *, tell: Callable[[str], None] = lambda line: None
) -> tuple[State | None, str]:
    """Draw the inputs again, where that is wanted and the model has a finite answer to them; and say so."""
    request, state = subject.request, subject.state
    if not request.second_draw:
        return None, "one draw"
    drawn, why = second_draw(subject.reference(state), state.inputs, seed=request.seed)
    if drawn is None:
        tell(f"checked on one draw of the inputs: {why}")
        return None, f"one draw: {why}"
    return state.for_inputs(plain_inputs(drawn)), "two draws"


def check_on_second_draw(
    contestant: Contestant, subject: Subject, second: State | None, facts: Mapping[str, Any]
) -> None:
    """Let the engine check a contestant on other inputs, if any; where it is wrong, on the first before that is told.

    Raises:
        VerificationError: it is wrong on a draw; the message says on which. Its rows are not recorded.
    """

    def check(case_id: str, state: State) -> None:
        """Check, and time nothing.

        The calls on other values come before the check on the first draw, which is of the same code: a quarter of
        the calls of slow code, such as plain loops, is spared.
        """
        case = make_case(subject, facts, case_id=case_id, state=state)
        options = harness.SessionOptions(
            device=subject.device, verify_only=True, ceilings=False, other_values=False
        )
        compare(case, {contestant.name: contestant.bind(state)}, harness.Session(options))

    if second is None:
        return
    case_id = subject.request.case_id
    try:
        check(f"{case_id} (second draw)", second)
    except VerificationError as error:
        check(case_id, subject.state)
        message = f"right on the first draw of the inputs, and on a second one: {error}"
        raise type(error)(message, comparison=error.comparison) from error.__cause__


def count_work(subject: Subject) -> tuple[Work, str]:
    """Count the operations of products and convolutions, and the bytes of what goes in and out, once each.

    The model is called once. What the request states takes the place of what is counted; where they disagree, a
    sentence says so.
    """
    request, model, inputs, note = subject.request, subject.model, subject.state.private_inputs(), ""
    # of a recurrent layer that is one call of oneDNN's, the counter sees nothing
    with torch.no_grad(), without_onednn(), FlopCounterMode(display=False) as counter:
        outputs = model(*inputs)
    leaves = pytree.tree_leaves([*model.parameters(), *model.buffers(), inputs, outputs])
    tensors = {id(leaf): leaf for leaf in leaves if isinstance(leaf, torch.Tensor)}
    nbytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    subject.state.put_back()
    counted = counter.get_total_flops()
    stated = counted if request.gflops is None else round(request.gflops * 1e9)
    if stated and counted and abs(stated - counted) > 0.01 * counted:  # formulas leave out a bias
        note = (
            f"{stated / 1e9:.6g} GFLOP are stated, and its products and convolutions have {counted / 1e9:.6g}"
            f" ({stated / counted:.3g} times as many); figures go by what is stated"
        )
    compute = str(subject.element.torch).removeprefix("torch.")
    return Work(stated, request.bytes or max(1, nbytes), compute), note
