"""Makes a plan of the engine from a solution, its reference and the baselines asked for.

The order matters, and is here: the reference runs first, on data that no instance of the solution has seen;
then the solution is loaded and prewarmed on other values; then it is given the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelmark.errors import CrashedError, UsageError
from kernelmark.harness import Case, Implementation, Plan, make_plan
from kernelmark.kernelfile.baselines import Compiled, make_baselines
from kernelmark.kernelfile.languages import LANGUAGES
from kernelmark.kernelfile.reference import Reference, Tolerances, tensors_of
from kernelmark.kernelfile.request import SOLUTION, Request
from kernelmark.kernelfile.solutions import Ready, Solution
from kernelmark.verify import Elementwise, Exact, StaleGuard

__all__ = ["Bound", "bind"]

_OTHER_SEED = 0x5EED
"""Added to the seed for the values that a solution is loaded and prewarmed with."""


@dataclass(slots=True)
class Bound:
    """A plan, and what the report says about how it came about."""

    plan: Plan
    notes: dict[str, list[str]] = field(default_factory=dict)
    compiled: Compiled | None = None


@dataclass(frozen=True, slots=True)
class _Workload:
    """The case's data: the arguments that are no pure outputs, in order, and the reference over them."""

    names: tuple[str, ...]
    inputs: tuple[Any, ...]
    buffers: dict[str, torch.Tensor]
    outputs: tuple[str, ...]
    extra: dict[str, Any]
    source: Reference
    tolerances: Tolerances

    def gen_inputs(self) -> tuple[Any, ...]:
        return self.inputs

    def reference(self, *inputs: Any) -> dict[str, torch.Tensor]:
        kwargs = dict(zip(self.names, inputs, strict=True))
        return self.source.answer({**self.extra, **kwargs, **self.buffers}, self.outputs)

    def verification(self) -> Exact:
        return Exact(tolerance=Elementwise(self.tolerances.atol, self.tolerances.rtol))


def bind(
    request: Request,
    solution: Solution,
    reference: Reference,
    *,
    tolerances: Tolerances,
    extra: Mapping[str, Any],
    inferred: frozenset[str] = frozenset(),
) -> Bound:
    """Make the plan.

    Args:
        request: What was asked for.
        solution: How to make its arguments and call it.
        reference: The loaded reference.
        tolerances: What is close enough.
        extra: Values that only the reference takes.
        inferred: Buffers whose size was guessed, which may therefore be larger than the answer.

    Raises:
        UsageError: reference and solution do not fit each other.
        CrashedError: the solution cannot be loaded.
    """
    notes: list[str] = []
    fresh = solution.data(request.seed)
    _require_inout(reference, fresh.outputs)
    expected = _first_answer(reference, fresh, extra, inferred)
    forms = {name: (tuple(value.shape), value.dtype) for name, value in expected.items()}
    del expected
    own = solution.ready(request.seed + _OTHER_SEED)
    broken = _prewarm(own, request.prewarm_calls)
    _take_over(own, fresh, notes)
    del fresh
    views = {name: _view(own.kwargs[name], name, forms[name], inferred, notes) for name in own.outputs}
    workload = _workload(own, reference, extra, tolerances)
    case = Case(
        request.case_id,
        lambda: workload,
        params=dict(request.values),
        seed=request.seed,
    )
    ours = _implementation(own, views, workload, broken, request)
    baselines, compiled = make_baselines(request.baselines, workload, reference, case)
    return Bound(make_plan(case, (SOLUTION, ours), baselines), {SOLUTION: notes}, compiled)


def _first_answer(
    reference: Reference, fresh: Ready, extra: Mapping[str, Any], inferred: frozenset[str]
) -> dict[str, torch.Tensor]:
    """Run the reference, and refuse sizes that it cannot work on before the solution overruns a buffer."""
    sizes = {name: fresh.kwargs[name] for name in sorted(inferred)}
    told = ", ".join(f"{name}: {value.numel()} elements" for name, value in sizes.items())
    advice = (
        f"; buffer sizes were inferred ({told}): give the reference file a shapes(**dims) that returns"
        " {parameter: shape}, or give --ptr-size"
    )
    try:
        answer = reference.answer({**extra, **fresh.kwargs}, fresh.outputs)
    except UsageError as error:
        raise UsageError(f"{error}{advice if inferred else ''}") from error
    except Exception as error:
        raise UsageError(
            f"the reference {reference.path} raised {type(error).__name__}: {error}{advice if inferred else ''}"
        ) from error
    for name in inferred & set(answer):
        if answer[name].numel() > fresh.kwargs[name].numel():
            raise UsageError(
                f"the reference's {name} has {answer[name].numel()} elements, more than the solution's buffer"
                f"{advice}"
            )
    return answer


def _require_inout(reference: Reference, outputs: tuple[str, ...]) -> None:
    unknown = [name for name in reference.inout if name not in outputs]
    if unknown:
        raise UsageError(
            f"{reference.path}: inout names {', '.join(unknown)}, and the solution's outputs are"
            f" {', '.join(outputs)}"
        )


def _prewarm(own: Ready, calls: int) -> Exception | None:
    """Call on other values than those that are compared; give what the first bad call raised."""
    try:
        for _ in range(calls):
            own.call()
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
    except Exception as error:  # noqa: BLE001 - it becomes the row of the solution, when that is checked
        return error
    return None


def _take_over(own: Ready, fresh: Ready, notes: list[str]) -> None:
    """Give the solution's own arguments the values that are compared, at their own addresses."""
    if set(own.kwargs) != set(fresh.kwargs) or own.outputs != fresh.outputs:
        raise UsageError(
            "setup() gave other names when it was called again; what it gives may depend on its arguments only"
        )
    same = True
    for name, value in fresh.kwargs.items():
        mine = own.kwargs[name]
        if not isinstance(value, torch.Tensor):
            own.kwargs[name] = value
            continue
        if not isinstance(mine, torch.Tensor) or (mine.shape, mine.dtype) != (value.shape, value.dtype):
            raise UsageError(f"setup() gave {name} in another shape or dtype when it was called again")
        if name not in own.outputs and value.is_floating_point():
            same = same and torch.equal(mine, value)
        mine.copy_(value)
    floats = [
        t for n, t in own.kwargs.items() if n not in own.outputs and isinstance(t, torch.Tensor)
        and t.is_floating_point()
    ]  # fmt: skip
    if same and floats:
        # setup draws the same values for every seed, so the solution has seen them; others are made from them
        StaleGuard(floats, seed=_OTHER_SEED).scramble()
        notes.append("setup() gives the same values for every seed, so they were permuted before the check")


def _view(
    buffer: torch.Tensor, name: str, form: tuple[tuple[int, ...], torch.dtype], inferred: frozenset[str],
    notes: list[str],
) -> torch.Tensor:  # fmt: skip
    """Look at a flat buffer in the shape of the reference's answer; C knows no shapes."""
    shape, dtype = form
    count = torch.Size(shape).numel()
    if name not in inferred or dtype != buffer.dtype or count > buffer.numel():
        return buffer
    if count < buffer.numel():
        notes.append(f"{name}: the first {count} of {buffer.numel()} elements are the reference's answer")
    return buffer.reshape(-1)[:count].view(shape)


def _workload(
    own: Ready, reference: Reference, extra: Mapping[str, Any], tolerances: Tolerances
) -> _Workload:
    pure = {name for name in own.outputs if name not in reference.inout}
    inputs = {
        # what is updated in place starts from a copy that stays as it is
        name: value.clone() if name in own.outputs else value
        for name, value in own.kwargs.items()
        if name not in pure
    }
    return _Workload(
        names=tuple(inputs),
        inputs=tuple(inputs.values()),
        buffers={name: torch.empty_like(own.kwargs[name]) for name in own.outputs if name in pure},
        outputs=own.outputs,
        extra=dict(extra),
        source=reference,
        tolerances=tolerances,
    )


def _implementation(
    own: Ready,
    views: dict[str, torch.Tensor],
    workload: _Workload,
    broken: Exception | None,
    request: Request,
) -> Implementation:
    call = own.call

    def run() -> dict[str, torch.Tensor]:
        call()
        return views

    def fail() -> None:
        raise CrashedError(f"a prewarm call raised {type(broken).__name__}: {broken}") from broken

    pristine = dict(zip(workload.names, workload.inputs, strict=True))
    restored = [(own.kwargs[name], pristine[name]) for name in own.outputs if name in pristine]

    def reset() -> None:
        for mine, start in restored:
            mine.copy_(start)

    return Implementation(
        run=run if broken is None else fail,
        args=(),
        reset=reset if restored else None,
        owned_outputs=tuple(tensors_of(view for name, view in views.items() if name not in pristine)),
        damage=own.canaries.damage,
        backend=LANGUAGES[request.language].backend,
    )
