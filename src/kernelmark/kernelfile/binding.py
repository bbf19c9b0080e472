"""Makes a plan of the engine from a solution, its reference and the baselines asked for.

The order matters, and is here: the reference runs first, on data that no instance of the solution has seen;
then the solution is loaded and prewarmed on other values; then it is given the data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from kernelmark.errors import CrashedError, UsageError
from kernelmark.harness import Case, Implementation, Plan, make_plan
from kernelmark.kernelfile.baselines import Compiled, make_baselines
from kernelmark.kernelfile.languages import LANGUAGES
from kernelmark.kernelfile.preparing import Prepared
from kernelmark.kernelfile.reference import Reference, tensors_of
from kernelmark.kernelfile.request import SOLUTION, Request
from kernelmark.kernelfile.solutions import Ready
from kernelmark.verify import Exact, StaleGuard

__all__ = ["Bound", "bind", "shown_as", "take_values"]

_OTHER_SEED = 0x5EED
"""Added to the seed for the values that a solution is loaded and prewarmed with."""


@dataclass(slots=True)
class Bound:
    """A plan, and what the report says about how it came about."""

    plan: Plan
    own: Ready
    """The instance of the solution that is checked and timed."""
    notes: dict[str, list[str]] = field(default_factory=dict)
    compiled: Compiled | None = None

    def read_beside(self) -> str:
        """Say beside which buffers the solution reads, where its answer holds NaN from there; blank without."""
        ours = self.plan.ours.implementation
        assert isinstance(ours, Implementation)  # the solution is never unavailable here

        def call() -> None:
            if ours.reset is not None:
                ours.reset()
            self.own.call()

        try:
            names = self.own.canaries.readers(
                call, {name: self.own.kwargs[name] for name in self.own.outputs}
            )
        except Exception:  # noqa: BLE001 - it is known to be wrong already; this only looks for the reason
            return ""
        return names and (
            f"its NaN come from beside {names}: it reads outside that buffer, and the guards there hold NaN; compare"
            " its loop bounds with the sizes of the buffers"
        )


@dataclass(frozen=True, slots=True)
class _Workload:
    """The case's data: the arguments that are no pure outputs, in order, and the reference over them."""

    names: tuple[str, ...]
    inputs: tuple[Any, ...]
    buffers: dict[str, torch.Tensor]
    outputs: tuple[str, ...]
    prepared: Prepared

    def gen_inputs(self) -> tuple[Any, ...]:
        return self.inputs

    def reference(self, *inputs: Any) -> dict[str, torch.Tensor]:
        kwargs = dict(zip(self.names, inputs, strict=True))
        return self.prepared.reference.answer({**self.prepared.extra, **kwargs, **self.buffers}, self.outputs)

    def verification(self) -> Exact:
        return self.prepared.declaration

    @property
    def extra(self) -> dict[str, Any]:
        return self.prepared.extra


def bind(request: Request, prepared: Prepared) -> Bound:
    """Make the plan.

    Raises:
        UsageError: reference and solution do not fit each other.
        CrashedError: the solution cannot be loaded.
    """
    notes: list[str] = []
    reference, inferred = prepared.reference, prepared.inferred
    fresh = prepared.solution.data(request.seed)
    _require_inout(reference, fresh.outputs)
    expected = _first_answer(prepared, fresh)
    forms = {name: (tuple(value.shape), value.dtype) for name, value in expected.items()}
    del expected
    own = prepared.solution.ready(request.seed + _OTHER_SEED)
    broken = _prewarm(own, request.prewarm_calls)
    _take_over(own, fresh, notes)
    del fresh
    views = {}
    for name in own.outputs:
        views[name] = shown_as(own.kwargs[name], forms[name]) if name in inferred else own.kwargs[name]
        if views[name].numel() < own.kwargs[name].numel():
            count, total = views[name].numel(), own.kwargs[name].numel()
            notes.append(f"{name}: the first {count} of {total} elements are the reference's answer")
    workload = _workload(own, prepared)
    case = Case(
        request.case_id,
        lambda: workload,
        params=dict(request.values),
        seed=request.seed,
    )
    ours = _implementation(own, views, workload, broken, request)
    baselines, compiled = make_baselines(request.baselines, workload, reference, case)
    return Bound(make_plan(case, (SOLUTION, ours), baselines), own, {SOLUTION: notes}, compiled)


def take_values(own: Ready, fresh: Ready) -> bool:
    """Give the solution's own arguments the values of ``fresh``, at their own addresses.

    Gives whether all floats among the inputs were the same before.

    Raises:
        UsageError: the two do not have the same names and forms.
    """
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
    return same


def shown_as(buffer: torch.Tensor, form: tuple[tuple[int, ...], torch.dtype]) -> torch.Tensor:
    """Look at a flat buffer in the shape of the reference's answer, where it can be; C knows no shapes."""
    shape, dtype = form
    count = torch.Size(shape).numel()
    if dtype != buffer.dtype or count > buffer.numel():
        return buffer
    return buffer.reshape(-1)[:count].view(shape)


def _first_answer(prepared: Prepared, fresh: Ready) -> dict[str, torch.Tensor]:
    """Run the reference, and refuse sizes that it cannot work on before the solution overruns a buffer."""
    reference, inferred = prepared.reference, prepared.inferred
    sizes = {name: fresh.kwargs[name] for name in sorted(inferred)}
    told = ", ".join(f"{name}: {value.numel()} elements" for name, value in sizes.items())
    advice = (
        f"; buffer sizes were inferred ({told}): give the reference file a shapes(**dims) that returns"
        " {parameter: shape}, or give --ptr-size"
    )
    try:
        answer = reference.answer({**prepared.extra, **fresh.kwargs}, fresh.outputs)
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
    """Give the solution's own arguments the values that are compared; others where it has seen those."""
    same = take_values(own, fresh)
    floats = [
        t for n, t in own.kwargs.items() if n not in own.outputs and isinstance(t, torch.Tensor)
        and t.is_floating_point()
    ]  # fmt: skip
    if same and floats:
        # setup draws the same values for every seed, so the solution has seen them; others are made from them
        StaleGuard(floats, seed=_OTHER_SEED).scramble()
        notes.append("setup() gives the same values for every seed, so they were permuted before the check")


def _workload(own: Ready, prepared: Prepared) -> _Workload:
    pure = {name for name in own.outputs if name not in prepared.reference.inout}
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
        prepared=prepared,
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
