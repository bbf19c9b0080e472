"""A model on a device that no code is compiled for here: inductor checked against eager, and timed next to it.

MLIR has a row that says why it is not there. What is compared first is inductor, so that a ratio is eager's time over
inductor's. All of it works on a CPU too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernelmark.errors import UnavailableError, UsageError
from kernelmark.harness import (
    Case,
    Implementation,
    Session,
    Unavailable,
    make_plan,
    run_plan,
    use_session,
)
from kernelmark.models.case import main_element, make_case
from kernelmark.models.contestants import compiled_by_inductor, plain_call, reference_of
from kernelmark.models.request import Baseline, ModelRequest
from kernelmark.models.result import OURS, ModelRun
from kernelmark.models.state import State, plain_inputs
from kernelmark.models.two_draws import Contestant, Draws, draw_twice
from kernelmark.models.work import ModelWork, count_work
from kernelmark.records import Check, Role, Row
from kernelmark.verify import Exact, Tolerance
from torchsched.elements import Element
from torchsched.ingress import LoadedModel, load_model, require_output
from torchsched.packing import ALIGNMENT
from torchsched.signature import Result

__all__ = ["allow_tf32", "compute_float32_exactly", "exact_float32", "moved", "run_on_device"]

_NO_MLIR = "MLIR makes code for the CPU only, and this run is on {}"


def run_on_device(
    request: ModelRequest, device: str, session: Session, tell: Callable[[str], None]
) -> ModelRun:
    """Check inductor against eager on ``device``, and where asked time both.

    Raises:
        UsageError: nothing is left to check without inductor, or code is to be shown that there is none of.
        UnavailableError: inductor cannot compile the model here. The rows are recorded.
        VerificationError: inductor's answer is wrong; nothing was timed. The rows are recorded.
        TimingError: the instrument cannot vouch for a reading.
    """
    _require_something_to_do(request, device)
    with use_session(session), torch.no_grad(), exact_float32():
        loaded = load_model(
            request.path,
            inputs=request.inputs,
            init_args=request.init_args,
            element=request.element,
            seed=request.seed,
        )
        return _run(request, device, moved(loaded, device), session, tell)


def compute_float32_exactly() -> dict[str, bool]:
    """Let products and convolutions of f32 be computed in f32, and say how it was before, for :func:`allow_tf32`.

    Torch takes TF32 for convolutions on CUDA devices, and eager, the reference, is then off itself: on an H200 three
    of KernelBench's 35 convolutions failed with 2.7 to 3.0 times what an answer may be off, and one read 122 % of
    what the device can do in f32.
    """
    before = {name: backend.allow_tf32 for name, backend in _tf32_backends().items()}
    allow_tf32(dict.fromkeys(before, False))
    return before


def allow_tf32(where: dict[str, bool]) -> None:
    """Allow TF32, or not, for each of products and convolutions."""
    backends = _tf32_backends()
    for name, allowed in where.items():
        backends[name].allow_tf32 = allowed


def _tf32_backends() -> dict[str, Any]:
    return {"convolutions": torch.backends.cudnn, "products": torch.backends.cuda.matmul}


@contextmanager
def exact_float32() -> Iterator[None]:
    """Compute f32 exactly for a while; see :func:`compute_float32_exactly`."""
    before = compute_float32_exactly()
    try:
        yield
    finally:
        allow_tf32(before)


def moved(loaded: LoadedModel, device: str) -> LoadedModel:
    """Give the model and its inputs on ``device``: parameters, buffers, and tensors that are plain attributes."""

    def move(leaf: Any) -> Any:
        return leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf

    model = loaded.model.to(device)
    for module in model.modules():
        for name, value in vars(module).items():
            if not name.startswith("_") and _holds_a_tensor(value):
                setattr(module, name, pytree.tree_map(move, value))
    return replace(loaded, model=model, inputs=pytree.tree_map(move, loaded.inputs))


def _holds_a_tensor(value: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))


def _run(
    request: ModelRequest, device: str, loaded: LoadedModel, session: Session, tell: Callable[[str], None]
) -> ModelRun:
    model, inputs = loaded.model, plain_inputs(loaded.inputs, ALIGNMENT)
    state = State(model, inputs)
    if request.output is not None:
        require_output(request.output, tuple(Result("out", each) for each in state.outputs))
    element = request.element or main_element(model, loaded.inputs)
    rule = request.tolerance.for_element(element)
    reason = _NO_MLIR.format(device)
    tell(f"{OURS}: unavailable: {reason}")
    function = compiled_by_inductor(model, state)
    draws = draw_twice(
        reference_of(model, state), inputs, seed=request.seed, wanted=request.second_draw, tell=tell
    )
    make = _Cases(request, loaded, device, draws, rule)
    case = make(request.case_id, inputs, state)
    try:
        if isinstance(function, Unavailable):
            _record_unavailable(case, session, {Baseline.INDUCTOR: function.reason, OURS: reason})
            raise UnavailableError(f"{Baseline.INDUCTOR} on {device}: {function.reason}")
        tell("Running the benchmark..." if request.benchmark else "Executing the module...")
        bind = partial(_bound, function)
        contestant = Contestant(Baseline.INDUCTOR, request.case_id, device, bind, make, session.record)
        contestant.check_second_draw(draws, inputs, state)
        others: dict[str, Implementation | Unavailable] = {}
        if request.benchmark and Baseline.EAGER in request.baselines:
            others[Baseline.EAGER] = plain_call(model, state, backend="torch eager")
        others[OURS] = Unavailable(reason)
        work = _work(request, model, state, element, tell) if request.benchmark else None
        plan = make_plan(case, (Baseline.INDUCTOR, bind(inputs, state)), others)
        comparison = run_plan(plan, session, op=work)
    finally:
        case.release()
    return ModelRun(request, comparison, rule, {}, work, session.folder)


def _bound(function: Callable[..., Any], inputs: tuple[Any, ...], state: State) -> Implementation:
    return plain_call(function, state, backend="torch inductor")


class _Cases:
    """Makes the case of a model for inputs and a state."""

    def __init__(
        self, request: ModelRequest, loaded: LoadedModel, device: str, draws: Draws, rule: Tolerance
    ) -> None:
        self._request, self._loaded, self._rule = request, loaded, rule
        self._facts = {**_facts(loaded, device), "draws": str(draws)}

    def __call__(self, case_id: str, inputs: tuple[Any, ...], state: State) -> Case:
        return make_case(
            case_id,
            inputs,
            reference_of(self._loaded.model, state),
            Exact(tolerance=self._rule),
            facts=self._facts,
            seed=self._request.seed,
        )


def _facts(loaded: LoadedModel, device: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"device": device}
    if loaded.init_args:
        facts["init_args"] = ", ".join(map(repr, loaded.init_args))
    if torch.device(device).type == "cuda":
        facts["tf32 in products"] = torch.backends.cuda.matmul.allow_tf32
        facts["tf32 in convolutions"] = torch.backends.cudnn.allow_tf32
    return facts


def _work(
    request: ModelRequest,
    model: torch.nn.Module,
    state: State,
    element: Element,
    tell: Callable[[str], None],
) -> ModelWork:
    work = count_work(model, state.private_inputs(), element, gflops=request.gflops, nbytes=request.bytes)
    state.put_back()
    if work.note:
        tell(work.note)
    return work


def _record_unavailable(case: Case, session: Session, reasons: Mapping[str, str]) -> None:
    for name, reason in reasons.items():
        role = Role.BASELINE if name == OURS else Role.OURS
        session.record(
            Row(
                case=case.id,
                implementation=name,
                role=role,
                check=Check.UNAVAILABLE,
                note=reason,
                params=case.params,
                seed=case.seed,
            )
        )


def _require_something_to_do(request: ModelRequest, device: str) -> None:
    if Baseline.INDUCTOR not in request.baselines:
        names: Sequence[str] = [str(each) for each in request.baselines] or ["none"]
        raise UsageError(
            f"--baselines {','.join(names)} with --device {device}: there is no MLIR on it, so inductor is what is"
            " checked against eager; leave it in"
        )
    if request.dumps:
        raise UsageError(
            f"--dump-{request.dumps[0].name.lower()} with --device {device}: {_NO_MLIR.format('it')}"
        )
