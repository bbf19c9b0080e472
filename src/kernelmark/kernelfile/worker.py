"""What a solution's own process does: loads, checks and times it, and leaves its run in the job's folder.

The order matters, and is here: the reference runs first, on data that no instance of the solution has seen;
then the solution is loaded and prewarmed on other values; then it is given the data. A baseline that cannot be had
is a row that says why, never another one under its name. Statistics, verdict and report are the parent's.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelmark import harness
from kernelmark.errors import CrashedError, KernelmarkError, UsageError, VerificationError
from kernelmark.harness.baselines import Compiled, compiled_by_inductor
from kernelmark.harness.loading import forget_modules
from kernelmark.isolation import READY, TIMED, Channel, describe
from kernelmark.kernelfile.reference import by_name, copied, tensors_of
from kernelmark.kernelfile.request import LANGUAGES, SOLUTION, Baseline, Job, Request
from kernelmark.kernelfile.second_check import leave_answers
from kernelmark.kernelfile.solutions import Prepared, Ready, device_of, prepare, shown_as, take_values
from kernelmark.records import Note, NoteKind
from kernelmark.report.notes import note_text
from kernelmark.timing import Budget, open_timer
from kernelmark.verify import Exact, StaleGuard

__all__ = ["budget_of", "compare", "timer_for", "work"]

_WHATEVER_MS = 1e12
"""No budget of time, thirty years: a count was asked for, and nothing is to be said of a budget that nobody gave."""
_OTHER_SEED = 0x5EED
"""Added to the seed for the values that a solution is loaded and prewarmed with."""
_SMALL_MISS = 10
"""Times the tolerance; a wrong kernel is off by more, and rounding in a sum of a million terms by less."""

_Tell = Callable[[dict[str, Any]], object]


def work(job: Job, channel: Channel) -> None:
    """Carry out ``job`` in this process; what the worker is called with."""
    try:
        compare(job, channel.tell, channel)
    finally:
        forget_modules()


def compare(job: Job, tell: _Tell, channel: Channel | None = None) -> None:
    """Check and time the solution; the rows go to the run in the job's folder.

    Args:
        job: What to compare.
        tell: Gets ``{"facts": ...}`` and ``{"notes": {row: [note]}}`` as they are found out.
        channel: To the parent, which draws the seed of the second check once the timing is over; without one no
            answers are left for it.

    Raises:
        CrashedError: the solution raised while it was timed.
        VerificationError: an answer is wrong, or a baseline raised while it was timed.
    """
    request, device = job.request, device_of(job.request)
    timer = timer_for(request, device)
    options = harness.SessionOptions(
        device=device,
        timer=timer,
        verify_only=request.interpreted,
        cache=request.cache,
        budget=budget_of(request),
        out=job.folder,
        ceilings=False,
    )
    session = harness.Session(options)
    with harness.use_session(session):
        open_timer(timer, session.device)
        session.start()
        if channel is not None:
            channel.stage(
                READY
            )  # what a reading rests on is there; from here on files of the user's are loaded
        try:
            prepared = prepare(job, session.device.torch_name)
            tell({"facts": {**prepared.facts, "timer": session.timer_name}})
            bound = _bind(request, prepared)
            if request.interpreted:
                bound.notes.append(Note.of(NoteKind.INTERPRETED))
            _run(bound, session, tell)
            if channel is not None:
                inout, seed = prepared.reference.inout, int(channel.ask(TIMED))
                leave_answers(bound.own, prepared.solution, inout=inout, seed=seed, folder=job.folder)
        finally:
            session.close()


def budget_of(request: Request) -> Budget:
    """Give the exact counts that were asked for, whatever they cost; a round that is not kept is one more warm-up."""
    return Budget(
        sample_ms=_WHATEVER_MS,
        prepare_ms=_WHATEVER_MS,
        min_count=request.num_trials,
        max_count=request.num_trials,
        warmup_count=request.num_warmup + request.discard_first,
    )


def timer_for(request: Request, device: str) -> str | None:
    """Choose the instrument: the one asked for, events on CUDA devices, elsewhere the device's own."""
    return request.timer or ("device_events" if device.startswith("cuda") else None)


def _run(bound: _Bound, session: harness.Session, tell: _Tell) -> None:
    baselines, notes = bound.baselines, {SOLUTION: bound.notes}
    try:
        harness.run_plan(bound.plan, session)
    except KernelmarkError as error:
        # the solution gave an answer, and it, or a baseline's, is wrong
        reason = _explain(bound, error) if type(error) is VerificationError else None
        if reason is not None:
            bound.notes.append(reason)
            error.args = (f"{error}\n{note_text(reason)}",)
        raise
    except Exception as error:
        if any(error is each for each in baselines.errors):
            raise VerificationError(f"a baseline crashed while it was timed: {describe(error)}") from error
        raise CrashedError(f"the solution crashed: {describe(error)}") from error
    finally:
        graphs = baselines.compiled.recompiled() if baselines.compiled is not None else 0
        if graphs:
            notes[Baseline.COMPILE.value] = [Note.of(NoteKind.RECOMPILED, graphs=graphs)]
        tell({"notes": notes})


def _explain(bound: _Bound, error: VerificationError) -> Note | None:
    """Say where a wrong answer of the solution's may come from; nothing where nothing shows that."""

    def call() -> None:
        if bound.reset is not None:
            bound.reset()
        bound.own.call()

    own = bound.own
    try:
        beside = own.canaries.readers(call, {name: own.kwargs[name] for name in own.outputs})
    except Exception:  # noqa: BLE001 - it is known to be wrong already; this only looks for the reason
        beside = ""
    if beside:
        return Note.of(NoteKind.READS_BESIDE, buffers=beside)
    rows = error.comparison.rows if error.comparison is not None else ()
    errors = [each.error_over_tolerance for row in rows[:1] for each in row.outputs if not each.passed]
    if errors and all(each is not None and each < _SMALL_MISS for each in errors):
        return Note.of(NoteKind.SMALL_MISS, times=_SMALL_MISS)
    return None


# --- the plan ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Bound:
    """A plan, the instance of the solution that is checked and timed, and what is noted on its row."""

    plan: harness.Plan
    own: Ready
    reset: Callable[[], None] | None
    notes: list[Note]
    baselines: _Baselines


@dataclass(frozen=True, slots=True)
class _Workload:
    """The case's data: the arguments that are no pure outputs, in order, and the reference over them."""

    inputs: dict[str, Any]
    buffers: dict[str, torch.Tensor]
    outputs: tuple[str, ...]
    prepared: Prepared

    def gen_inputs(self) -> tuple[Any, ...]:
        return tuple(self.inputs.values())

    def reference(self, *inputs: Any) -> dict[str, torch.Tensor]:
        given = dict(zip(self.inputs, inputs, strict=True))
        return self.prepared.reference.answer({**self.kwargs, **given}, self.outputs)

    def verification(self) -> Exact:
        return Exact(self.prepared.reference.policy)

    @property
    def kwargs(self) -> dict[str, Any]:
        """What the reference is called with."""
        return {**self.prepared.extra, **self.inputs, **self.buffers}


def _bind(request: Request, prepared: Prepared) -> _Bound:
    """Make the plan; the compiled baseline is compiled here.

    Raises:
        UsageError: reference and solution do not fit each other.
        CrashedError: the solution cannot be loaded.
    """
    reference, notes = prepared.reference, list[Note]()
    fresh = prepared.solution.data(request.seed)
    if unknown := [name for name in reference.inout if name not in fresh.outputs]:
        raise UsageError(
            f"{reference.path}: inout names {', '.join(unknown)}, and the solution's outputs are"
            f" {', '.join(fresh.outputs)}"
        )
    # of the answer only the form is kept: the solution is not to find it in this process
    forms = {name: value.to("meta") for name, value in _first_answer(prepared, fresh).items()}
    own = prepared.solution.ready(request.seed + _OTHER_SEED)
    broken = _prewarm(own, request.prewarm_calls)
    same = take_values(own, fresh)
    inputs = tensors_of(value for name, value in own.kwargs.items() if name not in own.outputs)
    if same and (floats := [each for each in inputs if each.is_floating_point()]):
        # setup draws the same values for every seed, so the solution has seen them; others are made from them
        StaleGuard(floats, seed=_OTHER_SEED).scramble()
        notes.append(Note.of(NoteKind.SAME_DRAW))
    del fresh
    views = {name: own.kwargs[name] for name in own.outputs}
    for name in (name for name in own.outputs if name in prepared.inferred):
        whole = views[name].numel()
        views[name] = shown_as(views[name], forms[name])
        if views[name].numel() < whole:
            notes.append(Note.of(NoteKind.PART, output=name, elements=views[name].numel(), buffer=whole))
    pure = set(own.outputs) - set(reference.inout)
    given = {
        # what is updated in place starts from a copy that stays as it is
        name: value.clone() if name in own.outputs else value
        for name, value in own.kwargs.items()
        if name not in pure
    }
    buffers = {name: torch.empty_like(own.kwargs[name]) for name in own.outputs if name in pure}
    workload = _Workload(given, buffers, own.outputs, prepared)
    ours = _implementation(own, views, workload, broken, LANGUAGES[request.language].backend)
    baselines = _Baselines(workload, prepared)
    case = harness.Case(request.case_id, lambda: workload, params=dict(request.values), seed=request.seed)
    plan = harness.make_plan(
        case, (SOLUTION, ours), {name: baselines.make(name) for name in request.baselines}
    )
    return _Bound(plan, own, ours.reset, notes, baselines)


def _first_answer(prepared: Prepared, fresh: Ready) -> dict[str, torch.Tensor]:
    """Run the reference, and refuse sizes that it cannot work on before the solution overruns a buffer."""
    reference, inferred = prepared.reference, prepared.inferred
    told = ", ".join(f"{name}: {fresh.kwargs[name].numel()} elements" for name in sorted(inferred))
    advice = (
        f"; buffer sizes were inferred ({told}): give the reference file a shapes(**dims) that returns"
        " {parameter: shape}, or give --ptr-size"
    ) * bool(inferred)
    try:
        answer = reference.answer({**prepared.extra, **fresh.kwargs}, fresh.outputs)
    except UsageError as error:
        raise UsageError(f"{error}{advice}") from error
    except Exception as error:
        raise UsageError(
            f"the reference {reference.path} raised {type(error).__name__}: {error}{advice}"
        ) from error
    for name in inferred & set(answer):
        if answer[name].numel() > fresh.kwargs[name].numel():
            raise UsageError(
                f"the reference's {name} has {answer[name].numel()} elements, more than the solution's buffer"
                f"{advice}"
            )
    return answer


def _prewarm(own: Ready, calls: int) -> Exception | None:
    """Call on other values than those that are compared; give what the first bad call raised."""
    try:
        for _ in range(calls):
            own.call()
        _synchronise()
    except Exception as error:  # noqa: BLE001 - it becomes the row of the solution, when that is checked
        return error
    return None


def _implementation(
    own: Ready, views: dict[str, torch.Tensor], workload: _Workload, broken: Exception | None, backend: str
) -> harness.Implementation:
    call, pristine = own.call, workload.inputs

    def run() -> dict[str, torch.Tensor]:
        call()
        return views

    def fail() -> None:
        raise CrashedError(f"a prewarm call raised {type(broken).__name__}: {broken}") from broken

    return harness.Implementation(
        run=run if broken is None else fail,
        args=(),
        reset=_restoring({name: own.kwargs[name] for name in own.outputs if name in pristine}, pristine),
        owned_outputs=tuple(tensors_of(view for name, view in views.items() if name not in pristine)),
        guards=(own.canaries,),
        backend=backend,
    )


def _restoring(
    changing: Mapping[str, torch.Tensor], pristine: Mapping[str, Any]
) -> Callable[[], None] | None:
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
    prepared: Prepared
    compiled: Compiled | None = None
    errors: list[BaseException] = field(default_factory=list)
    """What baselines raised, and the solution did not."""

    def make(self, name: Baseline) -> harness.Implementation | harness.Unavailable:
        function = self.prepared.reference.function
        if name is Baseline.EAGER:
            return self._implementation(function, "torch eager")
        if name is Baseline.FLASHINFER:
            return self._flashinfer(function)
        found = compiled_by_inductor(
            function, lambda each: _call_once(self._implementation(each, "torch.compile"))
        )
        if isinstance(found, harness.Unavailable):
            return found
        self.compiled = found
        return self._implementation(found.function, "torch.compile")

    def _flashinfer(self, function: Callable[..., Any]) -> harness.Implementation | harness.Unavailable:
        file, parameters = self.prepared.reference.path.name, inspect.signature(function).parameters
        open_ended = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
        if "baseline" not in parameters and not open_ended:
            return harness.Unavailable(f"{file}: reference() takes no baseline")
        baseline = self._implementation(
            lambda **kwargs: function(**{**kwargs, "baseline": "flashinfer"}), "flashinfer"
        )
        try:
            _call_once(baseline)
        except ImportError as error:
            return harness.Unavailable(f"flashinfer cannot be imported: {error}")
        except Exception:  # noqa: BLE001 - the check calls it again, and tells
            return baseline
        if "flashinfer" not in sys.modules:
            return harness.Unavailable(
                f'{file}: reference(baseline="flashinfer") did not import flashinfer, so it is another'
                " implementation"
            )
        return baseline

    def _implementation(self, function: Callable[..., Any], backend: str) -> harness.Implementation:
        workload, reference = self.workload, self.prepared.reference
        inputs = workload.inputs
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
            return in_place if result is None else by_name(result, workload.outputs, kwargs, reference.path)

        # whether the reference fills its buffers, rather than return tensors of its own
        fills = reference.function(**copied(workload.kwargs)) is None
        return harness.Implementation(
            run=run,
            args=(),
            reset=_restoring(changing, inputs),
            owned_outputs=tuple(buffers.values()) if fills else (),
            backend=backend,
        )


def _call_once(implementation: harness.Implementation) -> None:
    if implementation.reset is not None:
        implementation.reset()
    implementation.run()
    _synchronise()
