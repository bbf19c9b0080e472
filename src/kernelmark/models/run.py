"""One model from the request to its rows: load, compile, let the engine check and time it; on any device alike.

What a user should see is told, line by line as it comes, to a function that is handed in: where the lines go (a
terminal, the log of a kernel's process) is the caller's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernelmark.device import is_out_of_memory
from kernelmark.errors import (
    KernelmarkError,
    ModelError,
    OutOfMemoryError,
    UnavailableError,
    UsageError,
    VerificationError,
)
from kernelmark.harness import (
    Comparison,
    Implementation,
    Session,
    SessionOptions,
    Unavailable,
    make_plan,
    run_plan,
    use_session,
)
from kernelmark.models.case import (
    ModelWork,
    check_on_second_draw,
    count_work,
    draw_twice,
    main_element,
    make_case,
    request_facts,
    require_outputs,
)
from kernelmark.models.compilers import (
    Contestant,
    Subject,
    compile_with,
    exact_float32,
)
from kernelmark.models.mlir import build_options, compile_by_mlir
from kernelmark.models.request import MLIR, ModelRequest, Show, figure, policy_for
from kernelmark.models.state import State, plain_inputs
from kernelmark.records import Check, Note, NoteKind, Role, Row
from kernelmark.report import write_reports
from kernelmark.report.notes import note_text
from kernelmark.text import in_short
from kernelmark.timing import Budget
from kernelmark.units import format_time
from kernelmark.verify import Policy, Tolerance
from torchsched.bindings import bindings
from torchsched.failures import Stage
from torchsched.heap import keep_large_blocks
from torchsched.ingress import LoadedModel, load_model
from torchsched.lowering import Observer, OnStep, unheard
from torchsched.packing import ALIGNMENT
from torchsched.targets import Target

__all__ = ["ModelRun", "ModulePrinter", "load_subject", "moved", "print_model", "run_model"]


@dataclass(frozen=True, slots=True)
class ModelRun:
    """What one model's run found."""

    request: ModelRequest
    comparison: Comparison
    tolerance: Tolerance
    seconds: Mapping[str, float]
    """What each stage of compiling took; none of it is in a call. Empty where no code was compiled by way of MLIR."""
    work: ModelWork | None
    """None where nothing was timed."""
    folder: Path | None
    """Where the run is kept."""

    @property
    def ours(self) -> Row:
        """The row that the others are compared with: that of the compiler that the run is about."""
        return self.comparison.rows[0]

    def lines(self) -> Iterator[str]:
        """Write what scripts read, then the table."""
        timing = self.ours.timing
        if timing is not None:
            yield f"{timing.latency.samples} runs: {timing.latency.mean_ns / 1e9!r} seconds"
        if self.ours.check is Check.VERIFIED:
            yield "Success: The output of the compiled model matches the reference output."
        else:
            yield f"{str(self.ours.check).capitalize()}: {note_text(self.ours.note)}"
        yield f"Tolerance: {figure(self.tolerance)}"
        if timing is not None and self.work is not None and self.work.gflops is not None:
            yield f"\nPerformance: {self.work.flops / timing.latency.mean_ns:.2f} GFLOPS"
        if timing is not None:
            yield f"\nThe lines above go by the mean of all calls, the table by medians.\n{self.comparison}"
        stages = [f"{stage} {format_time(seconds * 1e9, 3)}" for stage, seconds in self.seconds.items()]
        if stages:
            yield f"Compiling took: {', '.join(stages)}"
        if self.folder is not None:
            yield f"the report is {self.folder / 'report.md'}"


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
        UnavailableError: this machine lacks torch-mlir, or what the code would need, or the compiler fails here. The
            rows are recorded.
        OutOfMemoryError: the model, its inputs or its answer do not fit into memory.
        ModelError: a stage refused the model, or the compiled one could not be called. The row is recorded.
        VerificationError: the compiled model's answer is wrong; nothing was timed. The rows are recorded.
        TimingError: the instrument cannot vouch for a reading.
    """
    device = _device(request)
    compiler = request.compiler_on(device)
    target = request.resolve_target() if device == "cpu" else None
    if compiler == MLIR and target is not None:
        bindings("ir")  # where torch-mlir is missing, that is told before a model's file runs
        if request.element is not None:
            build_options(request, target).schedule_for(request.element, target)
        for note in target.notes:
            tell(note)
    options = SessionOptions(
        device=device,
        verify_only=not request.benchmark,
        cache=request.cache,
        budget=Budget(min_count=request.iterations, max_count=request.iterations),
        out=request.out,
        ceilings=request.benchmark,
    )
    session = Session(options, command=tuple(command))
    outcome = "failed"
    try:
        with use_session(session), torch.no_grad(), _settled(target) as malloc, told_of_memory(request.name):
            on_step("load")
            subject, loaded = load_subject(request, device)
            run = _Run(subject, loaded, compiler, target, session, tell, observer, on_step, malloc)
            found = run.carry_out()
            outcome = "completed"
    finally:
        session.close(outcome)
        if session.folder is not None:
            write_reports(session.folder)
    return found


def load_subject(request: ModelRequest, device: str) -> tuple[Subject, LoadedModel]:
    """Load a request's model and move it to ``device``; with what was loaded.

    Raises:
        UsageError: the file lacks what it must hold, its own code raised, or the model gives something else than the
            request says.
    """
    loaded = load_model(
        request.path,
        inputs=request.inputs,
        init_args=request.init_args,
        element=request.element,
        seed=request.seed,
    )
    if device != "cpu":
        loaded = moved(loaded, device)
    inputs = plain_inputs(loaded.inputs, ALIGNMENT)
    subject = Subject(request, loaded.model, inputs, State(loaded.model, inputs), device)
    if request.outputs is not None:
        require_outputs(request.outputs, subject.state.outputs)
    return subject, loaded


def moved(loaded: LoadedModel, device: str) -> LoadedModel:
    """Give the model and its inputs on ``device``: parameters, buffers, and tensors that are plain attributes."""

    def move(leaf: Any) -> Any:
        return leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf

    model = loaded.model.to(device)
    for module in model.modules():
        for name, value in vars(module).items():
            if not name.startswith("_") and any(
                isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value)
            ):
                setattr(module, name, pytree.tree_map(move, value))
    return replace(loaded, model=model, inputs=pytree.tree_map(move, loaded.inputs))


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
        if (cause := _allocator_s(error)) is None:
            raise
        raise OutOfMemoryError(
            f"{name}: memory ran out ({in_short(cause)}); give it smaller --input-shapes, or more memory"
        ) from error


def _allocator_s(error: BaseException | None) -> BaseException | None:
    while error is not None and not is_out_of_memory(error):
        error = error.__cause__
    return error


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of one model."""

    subject: Subject
    loaded: LoadedModel
    compiler: str
    target: Target | None
    """What code is made for; ``None`` on a device that none is made for by way of MLIR."""
    session: Session
    tell: Callable[[str], None]
    observer: Observer | None
    on_step: OnStep
    malloc: Mapping[str, str]

    def carry_out(self) -> ModelRun:
        """Compile, check, time."""
        subject, request = self.subject, self.subject.request
        element = request.element or main_element(subject.model, self.loaded.inputs)
        rule = policy_for(request.tolerance, element)
        others: dict[str, Unavailable] = {}
        if subject.device != "cpu":
            others[MLIR] = Unavailable(
                f"MLIR makes code for the CPU only, and this run is on {subject.device}"
            )
            self.tell(f"{MLIR}: unavailable: {others[MLIR].reason}")
        facts = request_facts(request, self.loaded, subject.device)
        case = None
        try:
            ours = self._ours()
            if isinstance(ours, Unavailable):
                self._record(rule, facts, {self.compiler: ours, **others})
                raise UnavailableError(f"{self.compiler} on {subject.device}: {ours.reason}")
            self.on_step(Stage.RUN)
            draws = draw_twice(subject, tell=self.tell)
            facts |= {"draws": str(draws), **self._facts_of(ours)}
            case = make_case(subject, rule, facts)
            bound = ours.bind(subject.inputs, subject.state)
            self.tell("Running the benchmark..." if request.benchmark else "Executing the module...")
            check_on_second_draw(
                ours,
                subject,
                draws,
                lambda case_id, inputs, state: make_case(
                    subject, rule, facts, case_id=case_id, inputs=inputs, state=state
                ),
                self.session.record,
            )
            work = count_work(subject, element) if request.benchmark else None
            if work is not None and work.note:
                self.tell(work.note)
            plan = make_plan(case, (self.compiler, bound), {**self._baselines(), **others})
            comparison = run_plan(plan, self.session, op=work)
        except ModelError as error:
            if request.out is not None:
                self._record(rule, facts, {self.compiler: error})
            raise
        except VerificationError as error:
            if isinstance(error.__cause__, ModelError):
                raise error.__cause__ from error
            raise
        finally:
            if case is not None:
                case.release()
        return ModelRun(
            request, comparison, rule.for_dtype(element.torch).rule, ours.seconds, work, self.session.folder
        )

    def _ours(self) -> Contestant | Unavailable:
        if self.compiler != MLIR or self.target is None:
            return compile_with(self.compiler, self.subject)
        return compile_by_mlir(
            self.subject, self.target, tell=self.tell, observer=self.observer, on_step=self.on_step
        )

    def _facts_of(self, ours: Contestant) -> dict[str, Any]:
        notes = self.target.notes if self.target is not None and self.compiler == MLIR else ()
        return {**ours.facts, **({"notes": "; ".join(notes)} if notes else {}), **self.malloc}

    def _baselines(self) -> dict[str, Implementation | Unavailable]:
        """Make what it is timed next to; a compiler that is checked itself is no baseline of its own."""
        subject, made = self.subject, dict[str, Implementation | Unavailable]()
        for name in subject.request.baselines if subject.request.benchmark else ():
            if name != self.compiler:
                found = compile_with(name, subject)
                made[name] = (
                    found if isinstance(found, Unavailable) else found.bind(subject.inputs, subject.state)
                )
        return made

    def _record(
        self, rule: Policy, facts: Mapping[str, Any], ends: Mapping[str, ModelError | Unavailable]
    ) -> None:
        """Keep a row of each implementation that there is none of; ``facts`` say at which stage a model failed."""
        case = make_case(self.subject, rule, facts)
        for name, end in ends.items():
            failed = isinstance(end, ModelError)
            self.session.record(
                Row(
                    case=case.id,
                    implementation=name,
                    role=Role.OURS if name == self.compiler else Role.BASELINE,
                    check=Check.FAILED if failed else Check.UNAVAILABLE,
                    note=Note.error(end) if failed else Note.of(NoteKind.UNAVAILABLE, reason=end.reason),
                    params={**case.params, **({"stage": end.stage} if failed else {})},
                    seed=case.seed,
                )
            )


def _device(request: ModelRequest) -> str:
    """Give the device's own name.

    Raises:
        UsageError: torch has no such kind of device.
        UnavailableError: this machine, or this build of torch, has none.
    """
    device = request.resolve_device()
    if device == "cpu":
        return device
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise UsageError(
            f"--device {device}: torch has no such device; use cpu, cuda, cuda:1 or auto"
        ) from error
    current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if current is None or current.type != kind:
        there = f"{current.type} and cpu" if current is not None else "cpu alone"
        raise UnavailableError(
            f"--device {device}: torch {torch.__version__} finds no {kind} device here, but {there}"
        )
    return device


@contextmanager
def _settled(target: Target | None) -> Iterator[Mapping[str, str]]:
    """Let torch be, for a while, as every contestant needs it; gives what a report says of malloc."""
    if target is None:
        with exact_float32():
            yield {}
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(target.threads)
    try:
        yield keep_large_blocks()
    finally:
        torch.set_num_threads(threads)


Write = Callable[[str], object]


def print_model(
    request: ModelRequest, write: Write, *, command: Sequence[str] = (), on_step: OnStep = unheard
) -> ModelRun:
    """Run a model and write what becomes known of it; see :func:`kernelmark.models.run_model`.

    Args:
        request: What to do, and which modules to write.
        write: Gets a text without its line's end, and has written it when it returns: what follows may crash.
        command: The command line, for the record.
        on_step: Gets each stage and each step of the schedule as it begins.
    """
    printer = ModulePrinter(request.shown, write)
    try:
        found = run_model(
            request,
            command=command,
            tell=printer.line,
            observer=printer if request.shown else None,
            on_step=on_step,
        )
    except KernelmarkError as error:
        printer.finish()
        if (comparison := getattr(error, "comparison", None)) is not None:
            write(str(comparison))
        raise
    for line in found.lines():
        printer.line(line)
    return found


class ModulePrinter:
    """Gets each stage's name and the module's text; writes those that were asked for.

    Args:
        shown: Which.
        write: Gets a text.
    """

    def __init__(self, shown: Sequence[Show], write: Write) -> None:
        self.shown, self.write = shown, write
        self._last: tuple[str, str] | None = None
        self._written = False

    def __call__(self, name: str, text: str) -> None:
        """Take one stage."""
        first = _is_import(name)
        if first:
            self.finish()
        self._last = (name, text)
        self._written = Show.AFTER_ALL in self.shown or (first and Show.ORIGINAL in self.shown)
        if self._written:
            self._module(name, text)

    def line(self, text: str) -> None:
        """Write a line for the user, behind the modules that came before it."""
        self.finish()
        self.write(text)

    def finish(self) -> None:
        """Write the last module of a graph, where that was asked for and has not been done."""
        last, self._last = self._last, None
        if (
            last is not None
            and Show.OPTIMISED in self.shown
            and not self._written
            and not _is_import(last[0])
        ):
            self._module(*last)

    def _module(self, name: str, text: str) -> None:
        self.write(f"// ----- {name} -----\n{text}")


def _is_import(name: str) -> bool:
    return name.rpartition(": ")[2] == Stage.IMPORT
