"""Runs the kernels of a suite, each in a worker of its own, and says what became of each; always to the end.

A plan is made first, from which every error of use is told before anything is touched. Each outcome is kept as it
comes, so that a run can be taken up again. Where several run at once and are timed, one at a time is, and the others
are held meanwhile.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from kernelmark.errors import KernelmarkError, UsageError
from kernelmark.isolation import Death, Ended, Limits, Start, Turns, Worker, errors_beside
from kernelmark.kernelbench.kernel import PRELOAD, KernelAnswer, KernelJob, fate_of, run_kernel
from kernelmark.kernelbench.results import OUTCOMES, SuiteHeader, kernel_folder, log_name
from kernelmark.kernelbench.statuses import Outcome, Status
from kernelmark.kernelbench.suite import Entry, Sizes
from kernelmark.models import ModelRequest
from kernelmark.models.request import MLIR, packed
from kernelmark.records import Cause, Fate, Stage
from kernelmark.text import suggestion
from torchsched.descriptors import list_schedules

__all__ = [
    "DEFAULT_MEMORY_BYTES",
    "DEFAULT_TIME_S",
    "DEFAULT_TIME_SMOKE_S",
    "DriverOptions",
    "KernelEnd",
    "KernelPlan",
    "drive",
    "header_of",
    "make_plan",
    "words_for",
    "worker_for",
]

DEFAULT_TIME_S, DEFAULT_TIME_SMOKE_S = 300.0, 900.0
"""Seconds that a kernel may take, and in plain loops: a product of 2.1 GFLOP takes 5 s of processor there, and the
largest model of level 3 has 39. DenseNet201, the longest to compile, takes 116 s."""
DEFAULT_MEMORY_BYTES = 8 << 30
"""Address space."""
_ENVIRONMENT = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""Lets torch count GPUs without opening the driver, which a process that is forked afterwards could not use."""
_ASLEEP = {"OMP_WAIT_POLICY": "passive"}
"""What threads do that wait for others, where nothing is timed: two kernels at once have twice as many threads as
there are cores, and one that spins keeps the core from the one it waits for. A ReLU did not end within 120 s
beside other work."""
_SMOKE_PIPELINE = "loops"
_SHOWN = 300

Parse = Callable[[Sequence[str]], tuple[ModelRequest, frozenset[str]]]
"""Reads a command line for one model; gives the request, and which options it names."""


@dataclass(frozen=True, slots=True)
class DriverOptions:
    """How a suite is run.

    Raises:
        UsageError: options that exclude each other.
    """

    root: Path
    """The tree that holds the model files."""
    out: Path
    """Where logs, reports and outcomes go."""
    dtype: str = "f32"
    sizes: Sizes = Sizes.SUITE
    benchmark: bool = False
    smoke: bool = False
    """Run the default lowering to loops, whatever the entry's pipeline is."""
    torch_compile: bool = False
    infer_shapes: bool = False
    jobs: int = 1
    device: str = "cpu"
    """What the kernels run on; anything but the CPU has no limit of address space, of which CUDA maps all there is."""
    limits: Limits = field(default_factory=lambda: Limits(DEFAULT_TIME_S, DEFAULT_MEMORY_BYTES))
    extra: tuple[str, ...] = ()
    """Handed on to the command for one model as they are."""

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise UsageError(f"--jobs {self.jobs}: at least one")
        if self.smoke and self.device != "cpu":
            raise UsageError(
                f"--smoke-test with --device {self.device}: plain loops are made for the CPU only"
            )


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """One kernel that is to be run."""

    entry: Entry
    words: tuple[str, ...]
    """The command line for it, behind the program's name."""
    request: ModelRequest | None
    why_not: str = ""
    """Why it cannot be tried, where there is no request."""


@dataclass(frozen=True, slots=True)
class KernelEnd:
    """One kernel's end, with what to show of it."""

    plan: KernelPlan
    outcome: Outcome
    fate: Fate
    output: str = ""
    errors: str = ""
    death: Death | None = None


# --- the plan ------------------------------------------------------------------------------------------


def make_plan(entries: Iterable[Entry], options: DriverOptions, parse: Parse) -> tuple[KernelPlan, ...]:
    """Say what is run for each entry; nothing is touched.

    Raises:
        UsageError: an option that no kernel could be run with.
        SuiteError: an entry that has no sizes of the kind that was asked for, or names no schedule.
    """
    # what is handed on by itself first: what is wrong with it is of no kernel
    general, named = parse([*_general_words(options), *options.extra])
    if general.compiler_on(options.device) != MLIR:
        named |= {"pipeline"}
    return tuple(_plan(entry, options, parse, named, general.roots) for entry in entries)


def _plan(
    entry: Entry, options: DriverOptions, parse: Parse, named: frozenset[str], roots: tuple[Path, ...]
) -> KernelPlan:
    if entry.dtypes and options.dtype not in entry.dtypes:
        return KernelPlan(entry, (), None, f"the suite has it in {', '.join(entry.dtypes)} only")
    pipelines = _pipelines(roots)
    if "pipeline" not in named and not options.smoke and entry.pipeline not in pipelines:
        hint = suggestion(entry.pipeline, pipelines, there_are="pipelines")
        raise entry.place.error(f"pipeline {entry.pipeline!r}: there is none; {hint}")
    words, file = words_for(entry, options, named), options.root / entry.kernel
    try:
        request, _ = parse(words)
    except UsageError as error:
        raise UsageError(f"{entry.kernel}: {error}") from error
    return (
        KernelPlan(entry, words, request)
        if file.is_file()
        else KernelPlan(entry, words, None, f"{file} is not there")
    )


@cache
def _pipelines(roots: tuple[Path, ...]) -> list[str]:
    return sorted({each.pipeline for each in list_schedules(roots)})


def words_for(entry: Entry, options: DriverOptions, named: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Give the command line, without the program's name, that runs ``entry``.

    Args:
        entry: The entry.
        options: How the suite is run.
        named: The options that ``options.extra`` names, which are obeyed in place of what the entry says.

    Raises:
        SuiteError: the entry has no sizes of the kind that was asked for.
    """
    run, tolerances = entry.at(options.sizes), entry.tolerances if "tolerance" not in named else None

    def option(name: str, value: object) -> tuple[str, ...]:
        return () if value is None or name in named else (f"--{name.replace('_', '-')}", str(value))

    words = (
        *(
            str(options.root / entry.kernel),
            *option("pipeline", _SMOKE_PIPELINE if options.smoke else entry.pipeline),
        ),
        *_general_words(options),
    )
    if not options.infer_shapes:
        words += option("input_shapes", run.inputs(options.dtype))
        words += option("output_shape", run.output(options.dtype))
        words += option("init_args", None if run.init_args is None else list(run.init_args))
        words += option("gflops", run.gflops if options.benchmark else None)
        words += option("bytes", run.bytes if options.benchmark and options.dtype == "f32" else None)
    if tolerances is not None:
        words += (*option("atol", tolerances.atol), *option("rtol", tolerances.rtol))
    return (*words, "--out", str(kernel_folder(options.out, entry.kernel)), *options.extra)


def _general_words(options: DriverOptions) -> tuple[str, ...]:
    """Give the options that are the same for all kernels."""
    asked = {
        "--benchmark": options.benchmark,
        "--infer-shapes": options.infer_shapes,
        "--torch-compile": options.torch_compile,
    }
    device = ("--device", options.device) if options.device != "cpu" else ()
    return (*(flag for flag, wanted in asked.items() if wanted), "--dtype", options.dtype, *device)


# --- the run -------------------------------------------------------------------------------------------


def worker_for(options: DriverOptions) -> Worker[KernelAnswer]:
    """Give what runs the kernels; close it, or use it in a ``with`` block."""
    return Worker(
        run_kernel,
        options.limits,
        start=Start.FORK,
        preload=PRELOAD,
        environment=_ENVIRONMENT if options.benchmark else {**_ENVIRONMENT, **_ASLEEP},
        turns=Turns() if options.benchmark and options.jobs > 1 else None,
    )


def drive(
    plans: Sequence[KernelPlan],
    options: DriverOptions,
    worker: Worker[KernelAnswer],
    *,
    on_start: Callable[[KernelPlan], None] = lambda _: None,
    on_end: Callable[[KernelEnd], None] = lambda _: None,
    done: Sequence[Outcome] = (),
) -> tuple[Outcome, ...]:
    """Run every plan whose kernel is not among ``done``; give all outcomes in the plans' order.

    ``on_start`` and ``on_end`` are called for each kernel, from one thread at a time.
    """
    known = {outcome.kernel: outcome for outcome in done}
    (options.out / "logs").mkdir(parents=True, exist_ok=True)
    lock = threading.Lock()

    def one(plan: KernelPlan) -> Outcome:
        if plan.entry.kernel in known:
            return known[plan.entry.kernel]
        with lock:
            on_start(plan)
        end = _run(plan, options, worker)
        with lock:
            with open(options.out / OUTCOMES, "a", encoding="utf-8") as stream:
                stream.write(json.dumps(asdict(end.outcome)) + "\n")
            on_end(end)
        return end.outcome

    with ThreadPoolExecutor(options.jobs) as pool:
        futures = [pool.submit(one, plan) for plan in plans]
        try:
            return tuple(future.result() for future in futures)
        except BaseException:
            for future in futures:
                future.cancel()
            worker.close()
            raise


def _run(plan: KernelPlan, options: DriverOptions, worker: Worker[KernelAnswer]) -> KernelEnd:
    entry = plan.entry
    if plan.request is None:
        fate = Fate(Stage.ASKED, Cause.UNAVAILABLE)
        return KernelEnd(plan, Outcome(entry.kernel, entry.pipeline, Status.of(fate), plan.why_not), fate)
    log = options.out / "logs" / f"{log_name(entry.kernel)}.txt"
    # of an earlier run, or of one that was cut short: a folder holds one run
    shutil.rmtree(kernel_folder(options.out, entry.kernel), ignore_errors=True)
    job = KernelJob(packed(plan.request), ("kernel-bench", *plan.words))
    ended = worker.call(job, log=log)
    fate, message = fate_of(ended)
    with open(errors_beside(log), "a", encoding="utf-8") as stream:
        stream.write(_error_text(ended))
    output, errors = (file.read_text(errors="replace") for file in (log, errors_beside(log)))
    shown = message.partition("\n")[0][:_SHOWN]
    outcome = Outcome(entry.kernel, entry.pipeline, Status.of(fate), shown, round(ended.wall_s, 2))
    return KernelEnd(plan, outcome, fate, output, errors, ended.death)


def _error_text(ended: Ended[KernelAnswer]) -> str:
    if ended.failure is not None and not isinstance(ended.failure.error, KernelmarkError):
        return ended.failure.traceback
    return f"error: {ended.message}\n" if ended.message else ""


def header_of(options: DriverOptions, command: Sequence[str], *, run: str, started: str) -> SuiteHeader:
    """Describe a run for its folder."""
    return SuiteHeader(
        run=run,
        started=started,
        command=tuple(command),
        root=str(options.root),
        dtype=options.dtype,
        sizes=options.sizes,
        device=options.device,
        benchmark=options.benchmark,
        smoke=options.smoke,
        torch_compile=options.torch_compile,
        infer_shapes=options.infer_shapes,
        jobs=options.jobs,
        time_limit_s=options.limits.time_s or 0,
        memory_limit_bytes=options.limits.memory_bytes,
        extra=options.extra,
    )
