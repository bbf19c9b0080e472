"""One model from the request to its rows: load, compile, let the engine check and time it; on any device alike.

What a user should see is told, line by line as it comes, to a function that is handed in: where the lines go (a
terminal, the log of a kernel's process) is the caller's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelmark.errors import KernelmarkError, ModelError, UnavailableError, UsageError, VerificationError
from kernelmark.harness import Comparison, Session, SessionOptions, Unavailable
from kernelmark.models import case as cases
from kernelmark.models.compilers import build_options, compile_by_mlir, compile_with, exact_float32
from kernelmark.models.request import MLIR, ModelRequest, Show, figure
from kernelmark.records import Check, Note, NoteKind, Role, Row
from kernelmark.report import write_reports
from kernelmark.report.notes import note_text
from kernelmark.roofline import Work
from kernelmark.timing import Budget
from kernelmark.units import format_time
from kernelmark.verify import Tolerance
from torchsched.bindings import bindings
from torchsched.failures import Stage
from torchsched.heap import keep_large_blocks
from torchsched.lowering import Observer, OnStep, unheard
from torchsched.targets import Target

__all__ = ["ModelRun", "print_model", "run_model", "settled"]


@dataclass(frozen=True, slots=True)
class ModelRun:
    """What one model's run found."""

    comparison: Comparison
    tolerance: Tolerance
    seconds: Mapping[str, float]
    """What each stage of compiling took; none of it is in a call. Empty where no code was compiled by way of MLIR."""
    work: Work | None
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
        if timing is not None:
            if self.work is not None and self.work.flops:
                yield f"\nPerformance: {self.work.flops / timing.latency.mean_ns:.2f} GFLOPS"
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
        observer: Gets the name of each stage and the module then.
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
    device = request.resolve_device()
    options = SessionOptions(
        device=device,
        verify_only=not request.benchmark,
        cache=request.cache,
        budget=Budget(min_count=request.iterations, max_count=request.iterations),
        out=request.out,
        ceilings=request.benchmark,
    )
    session = Session(options, command=tuple(command))
    if device != "cpu":
        try:
            torch.device(device)
        except RuntimeError as error:
            raise UsageError(
                f"--device {device}: torch has no such device; use cpu, cuda, cuda:1 or auto"
            ) from error
        session.device.describe()  # that there is none is told before a model's file runs
    compiler = request.compiler_on(device)
    target = request.resolve_target() if device == "cpu" else None
    if compiler == MLIR and target is not None:
        bindings("ir")  # where torch-mlir is missing, that is told before a model's file runs
        if request.element is not None:
            build_options(request, target).schedule_for(request.element, target)
        for note in target.notes:
            tell(note)
    outcome = "failed"
    try:
        with torch.no_grad(), settled(target) as malloc, cases.told_of_memory(request.name):
            on_step("load")
            subject = cases.load_subject(request, device)
            found = _Run(subject, compiler, target, session, tell).carry_out(observer, on_step, malloc)
            outcome = "completed"
    finally:
        session.close(outcome)
        if session.folder is not None:
            write_reports(session.folder)
    return found


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of one model."""

    subject: cases.Subject
    compiler: str
    target: Target | None
    """What code is made for; ``None`` on a device that none is made for by way of MLIR."""
    session: Session
    tell: Callable[[str], None]

    def carry_out(self, observer: Observer | None, on_step: OnStep, malloc: Mapping[str, str]) -> ModelRun:
        """Compile, check, time."""
        subject, request, others = self.subject, self.subject.request, dict[str, Unavailable]()
        if subject.device != "cpu":
            others[MLIR] = Unavailable(
                f"MLIR makes code for the CPU only, and this run is on {subject.device}"
            )
            self.tell(f"{MLIR}: unavailable: {others[MLIR].reason}")
        facts = subject.facts()
        try:
            if self.compiler == MLIR and self.target is not None:
                ours: cases.Contestant | Unavailable = compile_by_mlir(
                    subject, self.target, tell=self.tell, observer=observer, on_step=on_step
                )
                notes = "; ".join(self.target.notes)
            else:
                ours, notes = compile_with(self.compiler, subject), ""
            if isinstance(ours, Unavailable):
                self._record(facts, {self.compiler: ours, **others})
                raise UnavailableError(f"{self.compiler} on {subject.device}: {ours.reason}")
            on_step(Stage.RUN)
            second, draws = cases.draw_twice(subject, tell=self.tell)
            facts |= {"draws": draws, **ours.facts, **({"notes": notes} if notes else {}), **malloc}
            case, bound = cases.make_case(subject, facts), ours.bind(subject.state)
            self.tell("Running the benchmark..." if request.benchmark else "Executing the module...")
            try:
                cases.check_on_second_draw(ours, subject, second, facts)
            except VerificationError as error:
                for row in error.comparison or ():
                    self.session.record(row)
                raise
            work, note = cases.count_work(subject) if request.benchmark else (None, "")
            if note:
                self.tell(note)
            contestants: dict[str, object] = {self.compiler: bound}
            for name in request.baselines if request.benchmark else ():
                if name != self.compiler:  # what is checked is no baseline of its own
                    made = compile_with(name, subject)
                    contestants[name] = made if isinstance(made, Unavailable) else made.bind(subject.state)
            comparison = cases.compare(case, contestants | others, self.session, work=work)
        except ModelError as error:
            if request.out is not None:
                self._record(facts, {self.compiler: error})
            raise
        except VerificationError as error:
            if isinstance(error.__cause__, ModelError):
                raise error.__cause__ from error
            raise
        rule = subject.policy.for_dtype(subject.element.torch).rule
        return ModelRun(comparison, rule, ours.seconds, work, self.session.folder)

    def _record(self, facts: Mapping[str, Any], ends: Mapping[str, ModelError | Unavailable]) -> None:
        """Keep a row of each implementation that there is none of; ``facts`` say at which stage a model failed."""
        case = cases.make_case(self.subject, facts)
        for name, end in ends.items():
            role = Role.OURS if name == self.compiler else Role.BASELINE
            if isinstance(end, ModelError):
                row = cases.untimed_row(case, name, Check.FAILED, Note.error(end), role=role, stage=end.stage)
            else:
                note = Note.of(NoteKind.UNAVAILABLE, reason=end.reason)
                row = cases.untimed_row(case, name, Check.UNAVAILABLE, note, role=role)
            self.session.record(row)


@contextmanager
def settled(target: Target | None) -> Iterator[Mapping[str, str]]:
    """Let torch be, for a while, as every contestant needs it; gives what a report says of malloc.

    Args:
        target: What code is made for; ``None`` on a device that none is made for.
    """
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


# --- what is written as it becomes known ----------------------------------------------------------------


def print_model(
    request: ModelRequest,
    write: Callable[[str], object],
    *,
    command: Sequence[str] = (),
    on_step: OnStep = unheard,
) -> ModelRun:
    """Run a model and write what becomes known of it; see :func:`kernelmark.models.run_model`.

    Args:
        request: What to do, and which modules to write.
        write: Gets a text without its line's end, and has written it when it returns: what follows may crash.
        command: The command line, for the record.
        on_step: Gets each stage and each step of the schedule as it begins.
    """
    printer = _ModulePrinter(request.shown, write)
    observer = printer.module if request.shown else None
    try:
        found = run_model(request, command=command, tell=printer.line, observer=observer, on_step=on_step)
    except KernelmarkError as error:
        printer.finish()
        if (comparison := getattr(error, "comparison", None)) is not None:
            write(str(comparison))
        raise
    for line in found.lines():
        printer.line(line)
    return found


class _ModulePrinter:
    """Gets each stage's name and the module then; writes those that were asked for, and lines behind them."""

    def __init__(self, shown: Sequence[Show], write: Callable[[str], object]) -> None:
        self._shown, self._write = shown, write
        self._last = ""
        """The module that is written if none of its graph comes after it."""

    def module(self, name: str, module: object) -> None:
        """Take the module after one stage."""
        first = name.rpartition(": ")[2] == Stage.IMPORT
        if first:
            self.finish()
        self._last = ""
        if Show.AFTER_ALL in self._shown or (first and Show.ORIGINAL in self._shown):
            self._write(f"// ----- {name} -----\n{module}")
        elif Show.OPTIMISED in self._shown and not first:
            self._last = f"// ----- {name} -----\n{module}"

    def line(self, text: str) -> None:
        self.finish()
        self._write(text)

    def finish(self) -> None:
        last, self._last = self._last, ""
        if last:
            self._write(last)
