"""One model from the request to its rows: load, compile, let the engine check and time it.

Builds a case and its implementations. It checks, times and renders nothing itself, and prints nothing: what a user
should see on the way is told to a function that is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kernelmark.errors import ModelError, UsageError, VerificationError
from kernelmark.harness import (
    Case,
    Implementation,
    Session,
    SessionOptions,
    Unavailable,
    make_plan,
    run_plan,
    use_session,
)
from kernelmark.models.case import main_element, make_case, request_facts
from kernelmark.models.contestants import (
    bound_code,
    inductor,
    plain_call,
    reference_of,
    through_torch_compile,
)
from kernelmark.models.request import Baseline, Dump, Mode, ModelRequest
from kernelmark.models.result import OURS, ModelRun
from kernelmark.models.state import State, plain_inputs
from kernelmark.models.two_draws import Binder, Contestant, Draws, draw_twice
from kernelmark.models.work import ModelWork, count_work
from kernelmark.records import Check, Role, Row
from kernelmark.timing import Budget
from kernelmark.verify import Exact, Tolerance
from torchsched.backend import Backend, BackendOptions
from torchsched.bindings import bindings
from torchsched.building import BuildOptions, build
from torchsched.elements import Element
from torchsched.failures import Stage
from torchsched.heap import keep_large_blocks
from torchsched.ingress import LoadedModel, load_model, require_output
from torchsched.lowering import Observer, OnStep, unheard
from torchsched.packing import ALIGNMENT
from torchsched.parallel import loaded_openmp
from torchsched.signature import Result
from torchsched.targets import Target

if TYPE_CHECKING:
    from torchsched.execution import Compiled

__all__ = ["OURS", "ModelRun", "run_model"]

_BLOCKS = 10


def run_model(
    request: ModelRequest,
    *,
    command: Sequence[str] = (),
    tell: Callable[[str], None] = lambda line: None,
    observer: Observer | None = None,
    on_step: OnStep = unheard,
) -> ModelRun:
    """Compile a model, check it against PyTorch, and where asked time it next to PyTorch.

    Args:
        request: What to do.
        command: The command line, for the record.
        tell: Gets lines for the user as they become known.
        observer: Gets the name of each stage and the module's text then.
        on_step: Gets each stage and each step of the schedule as it begins; ``run`` is the last.

    Raises:
        UsageError: the file, the options or the schedule do not fit each other; nothing was run.
        UnavailableError: this machine lacks torch-mlir, or what the code would need.
        ModelError: a stage refused the model, or the compiled one could not be called. The row is recorded.
        VerificationError: the compiled model's answer is wrong; nothing was timed. The rows are recorded.
        TimingError: the instrument cannot vouch for a reading.
    """
    device = request.resolve_device()
    if device != "cpu":
        return _on_device(request, device, tuple(command), tell)
    target = request.resolve_target()
    bindings("ir")  # where torch-mlir is missing, that is told before a model's file runs
    if request.element is not None:
        _build_options(request, target).schedule_for(request.element, target)
    for note in target.notes:
        tell(note)
    kept = keep_large_blocks()
    threads = torch.get_num_threads()
    torch.set_num_threads(target.threads)
    session = Session(_session_options(request), command=tuple(command))
    outcome = "failed"
    try:
        with use_session(session), torch.no_grad():
            on_step("load")
            loaded = load_model(
                request.path,
                inputs=request.inputs,
                init_args=request.init_args,
                element=request.element,
                seed=request.seed,
            )
            run = _Run(request, target, session, loaded, tell, observer, on_step, kept).carry_out()
            outcome = "completed"
    finally:
        torch.set_num_threads(threads)
        session.close(outcome)
        _write_reports(session.folder)
    return run


def _on_device(
    request: ModelRequest, device: str, command: tuple[str, ...], tell: Callable[[str], None]
) -> ModelRun:
    from kernelmark.models.on_device import run_on_device

    try:
        torch.device(device)
    except RuntimeError as error:
        raise UsageError(
            f"--device {device}: torch has no such device; use cpu, cuda, cuda:1 or auto"
        ) from error
    session = Session(_session_options(request, device), command=command)
    outcome = "failed"
    try:
        run = run_on_device(request, device, session, tell)
        outcome = "completed"
    finally:
        session.close(outcome)
        _write_reports(session.folder)
    return run


@dataclass(slots=True)
class _Run:
    """One run and what it has made so far."""

    request: ModelRequest
    target: Target
    session: Session
    loaded: LoadedModel
    tell: Callable[[str], None]
    observer: Observer | None
    on_step: OnStep
    malloc: Mapping[str, str]
    inputs: tuple[Any, ...] = ()
    seconds: dict[Stage, float] = field(default_factory=dict)
    draws: str = ""
    """On how many draws of the inputs the answer is checked."""
    threads: int = 1
    """How many the code uses, which is one where nothing in it is worth another."""

    @property
    def loaded_element(self) -> Element:
        """The float type of the model."""
        return self.request.element or main_element(self.loaded.model, self.loaded.inputs)

    def carry_out(self) -> ModelRun:
        """Compile, check, time."""
        request, model = self.request, self.loaded.model
        self.inputs = plain_inputs(self.loaded.inputs, ALIGNMENT)
        state = State(model, self.inputs)
        if request.output is not None:
            require_output(request.output, tuple(Result("out", each) for each in state.outputs))
        rule = request.tolerance.for_element(self.loaded_element)
        case = None
        try:
            bind = self._compiled(model, state)
            self.on_step(Stage.RUN)
            draws = self._draw_twice(model, state)
            case = self._case(request.case_id, self.inputs, state, rule)
            ours = bind(self.inputs, state)
            self.tell("Running the benchmark..." if request.benchmark else "Executing the module...")
            contestant = Contestant(
                OURS,
                request.case_id,
                "cpu",
                bind,
                lambda case_id, inputs, state: self._case(case_id, inputs, state, rule),
                self.session.record,
            )
            contestant.check_second_draw(draws, self.inputs, state)
            work = self._work(state) if request.benchmark else None
            plan = make_plan(case, (OURS, ours), self._baselines(model, state))
            comparison = run_plan(plan, self.session, op=work)
        except ModelError as error:
            self._record_failure(case or self._case(request.case_id, self.inputs, state, rule), error)
            raise
        except VerificationError as error:
            if isinstance(error.__cause__, ModelError):
                raise error.__cause__ from error
            raise
        finally:
            if case is not None:
                case.release()
        return ModelRun(request, comparison, rule, self.seconds, work, self.session.folder)

    def _draw_twice(self, model: torch.nn.Module, state: State) -> Draws:
        request = self.request
        draws = draw_twice(
            reference_of(model, state),
            self.inputs,
            seed=request.seed,
            wanted=request.second_draw,
            tell=self.tell,
        )
        self.draws = str(draws)
        return draws

    # --- ours ---------------------------------------------------------------------------------------

    def _compiled(self, model: torch.nn.Module, state: State) -> Binder:
        """Compile the model, and give what makes an implementation of the code for inputs and a state."""
        if self.request.mode is Mode.TORCH_COMPILE:
            return self._through_torch_compile(model, state)
        options = _build_options(self.request, self.target)
        built = build(model, self.inputs, options, observer=self.observer, on_step=self.on_step)
        self.seconds.update(built.seconds)
        self.threads = built.compiled.threads
        self._dump([built.compiled])
        return lambda inputs, state: bound_code(built, inputs, state)

    def _through_torch_compile(self, model: torch.nn.Module, state: State) -> Binder:
        request = self.request
        backend = Backend(
            BackendOptions(
                pipeline=request.pipeline,
                target=request.target,
                feature=request.feature,
                threads=self.target.threads,
                params=request.values,
                roots=request.roots,
            ),
            observer=self.observer,
            on_step=self.on_step,
        )
        implementation, function = through_torch_compile(model, backend, state)
        for subgraph in backend.subgraphs:
            for stage, seconds in subgraph.seconds.items():
                self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        compiled = [each.compiled for each in backend.subgraphs if each.compiled is not None]
        self.threads = max((each.threads for each in compiled), default=1)
        self._dump(compiled)
        return lambda inputs, state: plain_call(function, state, backend=implementation.backend)

    def _dump(self, compiled: Sequence[Compiled]) -> None:
        """Write the machine code into the folder where the command was called."""
        for dump in self.request.dumps:
            for number, code in enumerate(compiled, start=1):
                part = f".{number}" if len(compiled) > 1 else ""
                path = Path(f"{self.request.name}{part}.{dump}")
                if dump is Dump.OBJECT:
                    code.dump_object(path)
                    self.tell(f"Object written to {path}")
                else:
                    path.write_text(code.assembly(), encoding="utf-8")
                    self.tell(f"Assembly written to {path}")

    # --- what it is compared with -------------------------------------------------------------------

    def _baselines(self, model: torch.nn.Module, state: State) -> dict[str, Implementation | Unavailable]:
        if not self.request.benchmark:
            return {}
        made: dict[str, Implementation | Unavailable] = {}
        for baseline in self.request.baselines:
            if baseline is Baseline.EAGER:
                made[baseline] = plain_call(model, state, backend="torch eager")
            else:
                made[baseline] = inductor(model, state)
        return made

    def _case(self, case_id: str, inputs: tuple[Any, ...], state: State, rule: Tolerance) -> Case:
        reference = reference_of(self.loaded.model, state)
        facts = {
            **request_facts(self.request, self.loaded),
            "draws": self.draws,
            "threads": self.threads,
            **({"notes": "; ".join(self.target.notes)} if self.target.notes else {}),
            **({"openmp": str(loaded_openmp())} if self.threads > 1 else {}),
            **self.malloc,
        }
        return make_case(
            case_id, inputs, reference, Exact(tolerance=rule), facts=facts, seed=self.request.seed
        )

    def _work(self, state: State) -> ModelWork:
        request, element = self.request, self.loaded_element
        inputs = state.private_inputs()
        work = count_work(self.loaded.model, inputs, element, gflops=request.gflops, nbytes=request.bytes)
        state.put_back()
        if work.note:
            self.tell(work.note)
        return work

    def _record_failure(self, case: Case, error: ModelError) -> None:
        """Keep a row that says at which stage the model failed."""
        if self.request.out is not None:
            self.session.record(
                Row(
                    case=case.id,
                    implementation=OURS,
                    role=Role.OURS,
                    check=Check.FAILED,
                    note=str(error),
                    params={**case.params, "stage": error.stage},
                    seed=case.seed,
                )
            )


def _build_options(request: ModelRequest, target: Target) -> BuildOptions:
    return BuildOptions(
        pipeline=request.pipeline,
        element=request.element,
        target=target,
        roots=request.roots,
        values=request.values,
    )


def _session_options(request: ModelRequest, device: str = "cpu") -> SessionOptions:
    count = request.iterations
    return SessionOptions(
        device=device,
        verify_only=not request.benchmark,
        cache=request.cache,
        budget=Budget(min_count=count, max_count=count, blocks=min(_BLOCKS, count // 2)),
        out=request.out,
        ceilings=request.benchmark,
    )


def _write_reports(folder: Path | None) -> None:
    if folder is not None:
        from kernelmark.report import write_reports

        write_reports(folder)
