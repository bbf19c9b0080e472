"""Makes a plan of the engine from a solution, its reference and the baselines asked for.

The order matters, and is here: the reference runs first, on data that no instance of the solution has seen;
then the solution is loaded and prewarmed on other values; then it is given the data. A baseline that cannot be had
is a row that says why, never another one under its name.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelmark.errors import CrashedError, UsageError, VerificationError
from kernelmark.harness import Case, Implementation, Plan, Unavailable, make_plan
from kernelmark.harness.baselines import Compiled, compiled_by_inductor
from kernelmark.kernelfile.languages import LANGUAGES
from kernelmark.kernelfile.reference import Reference, by_name, copied, tensors_of
from kernelmark.kernelfile.request import SOLUTION, Baseline, Request
from kernelmark.kernelfile.solutions import Prepared, Ready
from kernelmark.verify import Exact, StaleGuard

__all__ = ["Bound", "bind", "shown_as", "take_values"]

_OTHER_SEED = 0x5EED
"""Added to the seed for the values that a solution is loaded and prewarmed with."""
_SMALL_MISS = 10
"""Times the tolerance; a wrong kernel is off by more, and rounding in a sum of a million terms by less."""


@dataclass(slots=True)
class Bound:
    """A plan, and what the report says about how it came about."""

    plan: Plan
    own: Ready
    """The instance of the solution that is checked and timed."""
    reset: Callable[[], None] | None
    notes: dict[str, list[str]]
    compiled: Compiled | None = None
    baseline_errors: list[BaseException] = field(default_factory=list)
    """What baselines raised, and the solution did not."""

    def explain(self, error: VerificationError) -> str:
        """Say where a wrong answer of the solution's may come from; blank where nothing shows that."""
        rows = error.comparison.rows if error.comparison is not None else ()
        wrong = [each for each in rows[0].outputs if not each.passed] if rows else []
        beside = self._read_beside()
        if beside:
            return (
                f"its NaN come from beside {beside}: it reads outside that buffer, and the guards there hold NaN;"
                " compare its loop bounds with the sizes of the buffers"
            )
        errors = [each.error_over_tolerance for each in wrong]
        if errors and all(each is not None and each < _SMALL_MISS for each in errors):
            return (
                f"the errors are less than {_SMALL_MISS} times what is allowed, as rounding in long sums can be:"
                ' if these are sums, say of how many terms in the reference file, as in reduction = "N"'
            )
        return ""

    def _read_beside(self) -> str:
        """Name the buffers beside which the solution reads, where its answer holds NaN from there."""

        def call() -> None:
            if self.reset is not None:
                self.reset()
            self.own.call()

        outputs = {name: self.own.kwargs[name] for name in self.own.outputs}
        try:
            return self.own.canaries.readers(call, outputs)
        except Exception:  # noqa: BLE001 - it is known to be wrong already; this only looks for the reason
            return ""


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
        return self.prepared.reference.answer(
            {**self.kwargs, **dict(zip(self.names, inputs, strict=True))}, self.outputs
        )

    def verification(self) -> Exact:
        return Exact(self.prepared.reference.policy)

    @property
    def kwargs(self) -> dict[str, Any]:
        """What the reference is called with."""
        return {**self.prepared.extra, **dict(zip(self.names, self.inputs, strict=True)), **self.buffers}


def bind(request: Request, prepared: Prepared) -> Bound:
    """Make the plan; the compiled baseline is compiled here.

    Raises:
        UsageError: reference and solution do not fit each other.
        CrashedError: the solution cannot be loaded.
    """
    notes: list[str] = []
    fresh = prepared.solution.data(request.seed)
    _require_inout(prepared.reference, fresh.outputs)
    # of the answer only the form is kept: the solution is not to find it in this process
    forms = {name: value.to("meta") for name, value in _first_answer(prepared, fresh).items()}
    own = prepared.solution.ready(request.seed + _OTHER_SEED)
    broken = _prewarm(own, request.prewarm_calls)
    _take_over(own, fresh, notes)
    del fresh
    views = {}
    for name in own.outputs:
        mine = own.kwargs[name]
        views[name] = shown_as(mine, forms[name]) if name in prepared.inferred else mine
        if views[name].numel() < mine.numel():
            notes.append(
                f"{name}: the first {views[name].numel()} of {mine.numel()} elements are the reference's answer"
            )
    workload = _workload(own, prepared)
    case = Case(request.case_id, lambda: workload, params=dict(request.values), seed=request.seed)
    ours = _implementation(own, views, workload, broken, request)
    baselines = _Baselines(workload, prepared.reference)
    plan = make_plan(case, (SOLUTION, ours), {name: baselines.make(name) for name in request.baselines})
    return Bound(plan, own, ours.reset, {SOLUTION: notes}, baselines.compiled, baselines.errors)


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


def shown_as(buffer: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
    """Look at a flat buffer in the shape of the reference's answer, where it can be; C knows no shapes."""
    if answer.dtype != buffer.dtype or answer.numel() > buffer.numel():
        return buffer
    return buffer.reshape(-1)[: answer.numel()].view(answer.shape)


def _first_answer(prepared: Prepared, fresh: Ready) -> dict[str, torch.Tensor]:
    """Run the reference, and refuse sizes that it cannot work on before the solution overruns a buffer."""
    reference, inferred = prepared.reference, prepared.inferred
    told = ", ".join(f"{name}: {fresh.kwargs[name].numel()} elements" for name in sorted(inferred))
    advice = inferred and (
        f"; buffer sizes were inferred ({told}): give the reference file a shapes(**dims) that returns"
        " {parameter: shape}, or give --ptr-size"
    )
    try:
        answer = reference.answer({**prepared.extra, **fresh.kwargs}, fresh.outputs)
    except UsageError as error:
        raise UsageError(f"{error}{advice or ''}") from error
    except Exception as error:
        raise UsageError(
            f"the reference {reference.path} raised {type(error).__name__}: {error}{advice or ''}"
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
        _synchronise()
    except Exception as error:  # noqa: BLE001 - it becomes the row of the solution, when that is checked
        return error
    return None


def _take_over(own: Ready, fresh: Ready, notes: list[str]) -> None:
    """Give the solution's own arguments the values that are compared; others where it has seen those."""
    same = take_values(own, fresh)
    inputs = tensors_of(value for name, value in own.kwargs.items() if name not in own.outputs)
    floats = [each for each in inputs if each.is_floating_point()]
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
    return Implementation(
        run=run if broken is None else fail,
        args=(),
        reset=_restoring({name: own.kwargs[name] for name in own.outputs if name in pristine}, pristine),
        owned_outputs=tuple(tensors_of(view for name, view in views.items() if name not in pristine)),
        guards=(own.canaries,),
        backend=LANGUAGES[request.language].backend,
    )


def _restoring(changing: dict[str, torch.Tensor], pristine: dict[str, Any]) -> Callable[[], None] | None:
    """Give what puts back the values of what a call updates; ``None`` where it updates nothing."""

    def reset() -> None:
        for name, value in changing.items():
            value.copy_(pristine[name])

    return reset if changing else None


def _synchronise() -> None:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


# --- baselines -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Baselines:
    """Makes baselines of a reference, each with output buffers of its own."""

    workload: _Workload
    of: Reference
    compiled: Compiled | None = None
    errors: list[BaseException] = field(default_factory=list)

    def make(self, name: Baseline) -> Implementation | Unavailable:
        if name is Baseline.EAGER:
            return self._implementation(self.of.function, "torch eager")
        return self._compile() if name is Baseline.COMPILE else self._flashinfer()

    def _compile(self) -> Implementation | Unavailable:
        def call(function: Callable[..., Any]) -> None:
            _call_once(self._implementation(function, "torch.compile"))

        found = compiled_by_inductor(self.of.function, call)
        if isinstance(found, Unavailable):
            return found
        self.compiled = found
        return self._implementation(found.function, "torch.compile")

    def _flashinfer(self) -> Implementation | Unavailable:
        parameters = inspect.signature(self.of.function).parameters
        open_ended = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
        if "baseline" not in parameters and not open_ended:
            return Unavailable(f"{self.of.path.name}: reference() takes no baseline")

        def function(**kwargs: Any) -> Any:
            return self.of.function(**{**kwargs, "baseline": "flashinfer"})

        baseline = self._implementation(function, "flashinfer")
        try:
            _call_once(baseline)
        except ImportError as error:
            return Unavailable(f"flashinfer cannot be imported: {error}")
        except Exception:  # noqa: BLE001 - the check calls it again, and tells
            return baseline
        if "flashinfer" not in sys.modules:
            return Unavailable(
                f'{self.of.path.name}: reference(baseline="flashinfer") did not import flashinfer, so it is another'
                " implementation"
            )
        return baseline

    def _implementation(self, function: Callable[..., Any], backend: str) -> Implementation:
        workload, path = self.workload, self.of.path
        inputs = dict(zip(workload.names, workload.inputs, strict=True))
        changing = {name: inputs[name].clone() for name in inputs if name in workload.outputs}
        buffers = {name: torch.empty_like(value) for name, value in workload.buffers.items()}
        kwargs = {**workload.kwargs, **changing, **buffers}
        in_place = {name: kwargs[name] for name in workload.outputs}

        def run() -> Any:
            try:
                result = function(**kwargs)
            except Exception as error:
                self.errors.append(error)
                raise
            return in_place if result is None else by_name(result, workload.outputs, kwargs, path)

        return Implementation(
            run=run,
            args=(),
            reset=_restoring(changing, inputs),
            owned_outputs=tuple(buffers.values()) if self._writes_in_place() else (),
            backend=backend,
        )

    def _writes_in_place(self) -> bool:
        """Whether the reference fills its buffers, rather than return tensors of its own."""
        return self.of.function(**copied(self.workload.kwargs)) is None


def _call_once(implementation: Implementation) -> None:
    if implementation.reset is not None:
        implementation.reset()
    implementation.run()
    _synchronise()
