"""Runs the kernels of a suite, each in a process of its own, and says what became of each; always to the end.

A process runs the command for one model with the entry's sizes. The driver reads its exit status and its error
message, nothing else of it, and keeps each outcome as it comes, so that a run can be taken up again. Where several
run at once and are timed, one at a time is, and the others are held meanwhile.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kernelmark.errors import UsageError
from kernelmark.kernelbench.results import (
    OUTCOMES,
    SuiteHeader,
    kernel_folder,
    log_name,
    read_outcomes,
)
from kernelmark.kernelbench.statuses import Outcome, Status
from kernelmark.kernelbench.suite import Entry, Sizes
from kernelmark.kernelbench.turns import Turns
from kernelmark.prefork import Finished, Limits, Prefork, errors_beside

__all__ = [
    "DEFAULT_MEMORY_BYTES",
    "DEFAULT_TIME_S",
    "DEFAULT_TIME_SMOKE_S",
    "DEFAULT_TIME_TIMED_S",
    "DriverOptions",
    "Ended",
    "arguments_for",
    "drive",
    "header_of",
    "outcome_of",
    "read_outcomes",
]

DEFAULT_TIME_S, DEFAULT_TIME_TIMED_S, DEFAULT_TIME_SMOKE_S = 300.0, 300.0, 900.0
"""Seconds that a kernel may take where it is only checked, where it is timed too, and in plain loops: a product of
2.1 GFLOP takes 5 s of processor there, and the largest model of level 3 has 39. DenseNet201, the longest to compile,
takes 116 s."""
DEFAULT_MEMORY_BYTES = 8 << 30
"""Address space."""


_SMOKE_PIPELINE = "loops"
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class DriverOptions:
    """How a suite is run."""

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
    limits: Limits = field(default_factory=lambda: Limits(DEFAULT_TIME_TIMED_S, DEFAULT_MEMORY_BYTES))
    extra: tuple[str, ...] = ()
    """Handed on to the command for one model as they are."""

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise UsageError(f"--jobs {self.jobs}: at least one")


@dataclass(frozen=True, slots=True)
class Ended:
    """One kernel's end, with what to show of it."""

    entry: Entry
    outcome: Outcome
    arguments: tuple[str, ...]
    output: str
    errors: str
    code: int


def arguments_for(entry: Entry, options: DriverOptions) -> list[str]:
    """Give the command line, without the program's name, that runs ``entry``.

    Raises:
        SuiteError: the entry has no sizes of the kind that was asked for.
    """
    run = entry.at(options.sizes)
    pipeline = _SMOKE_PIPELINE if options.smoke else entry.pipeline
    arguments = [str(options.root / entry.kernel), "--pipeline", pipeline, "--dtype", options.dtype]
    if options.infer_shapes:
        arguments += ["--infer-shapes"]
    else:
        arguments += ["--input-shapes", run.inputs(options.dtype), "--init-args", repr(list(run.init_args))]
    if options.benchmark:
        arguments += ["--benchmark"]
        if run.gflops and not options.infer_shapes:
            arguments += ["--gflops", run.gflops]
        if run.bytes is not None and not options.infer_shapes and options.dtype == "f32":
            arguments += ["--bytes", str(run.bytes)]
    if options.torch_compile:
        arguments += ["--torch-compile"]
    if options.device != "cpu":
        arguments += ["--device", options.device]
    if entry.tolerances is not None:
        arguments += ["--atol", repr(entry.tolerances.atol), "--rtol", repr(entry.tolerances.rtol)]
    arguments += ["--out", str(kernel_folder(options.out, entry.kernel))]
    return [*arguments, *options.extra]


def drive(
    entries: Iterable[Entry],
    options: DriverOptions,
    server: Prefork,
    *,
    on_end: Callable[[Ended], None] = lambda _: None,
    done: Sequence[Outcome] = (),
) -> tuple[Outcome, ...]:
    """Run every entry that is not among ``done``; give all outcomes in the suite's order.

    ``on_end`` is called for each kernel as it ends, from one thread at a time.
    """
    entries = tuple(entries)
    known = {outcome.kernel: outcome for outcome in done}
    (options.out / "logs").mkdir(parents=True, exist_ok=True)
    turn = threading.Lock()

    def one(entry: Entry) -> Outcome:
        if entry.kernel in known:
            return known[entry.kernel]
        ended = _run(entry, options, server, turns)
        with turn:
            with open(options.out / OUTCOMES, "a", encoding="utf-8") as stream:
                stream.write(json.dumps(asdict(ended.outcome)) + "\n")
            on_end(ended)
        return ended.outcome

    with ExitStack() as stack:
        together = options.benchmark and options.jobs > 1
        turns = stack.enter_context(Turns(server)) if together else None
        pool = stack.enter_context(ThreadPoolExecutor(options.jobs))
        futures = [pool.submit(one, entry) for entry in entries]
        try:
            return tuple(future.result() for future in futures)
        except BaseException:
            for future in futures:
                future.cancel()
            server.close()
            raise


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
        time_limit_s=options.limits.time_s,
        memory_limit_bytes=options.limits.memory_bytes,
        extra=options.extra,
    )


def outcome_of(entry: Entry, ended: Finished, *, limit_s: float) -> Outcome:
    """Say what a process's end means for its kernel."""
    status, message = _judge(ended, limit_s)
    return Outcome(entry.kernel, entry.pipeline, status, message[:_SHOWN], round(ended.wall_s, 2))


def _run(entry: Entry, options: DriverOptions, server: Prefork, turns: Turns | None) -> Ended:
    if entry.dtypes and options.dtype not in entry.dtypes:
        message = f"the suite has it in {', '.join(entry.dtypes)} only"
        outcome = Outcome(entry.kernel, entry.pipeline, Status.UNAVAILABLE, message)
        return Ended(entry, outcome, (), "", "", 0)
    arguments = arguments_for(entry, options)
    if not (options.root / entry.kernel).is_file():
        message = f"{options.root / entry.kernel} is not there"
        return Ended(
            entry,
            Outcome(entry.kernel, entry.pipeline, Status.UNAVAILABLE, message),
            tuple(arguments),
            "",
            "",
            3,
        )
    log = options.out / "logs" / f"{log_name(entry.kernel)}.txt"
    # of an earlier run, or of one that was cut short: a folder holds one run
    shutil.rmtree(kernel_folder(options.out, entry.kernel), ignore_errors=True)
    variables = turns.variables if turns is not None else None
    finished = server.run(arguments, log=log, limits=options.limits, variables=variables)
    outcome = outcome_of(entry, finished, limit_s=options.limits.time_s)
    output, errors = (file.read_text(errors="replace") for file in (log, errors_beside(log)))
    return Ended(entry, outcome, tuple(arguments), output, errors, finished.code)


_STAGE = re.compile(r"^error: (?:\S+: )?(import|lower|compile|run): ", re.MULTILINE)
_ERROR = re.compile(r"^error: (.*)$", re.MULTILINE)
_NO_MEMORY = re.compile(
    r"MemoryError|bad_alloc|can't allocate memory|Cannot allocate memory|not enough memory|CUDA out of memory"
)
_STAGES = {
    "import": Status.IMPORT_FAILURE,
    "lower": Status.LOWER_FAILURE,
    "compile": Status.COMPILE_FAILURE,
    "run": Status.RUN_FAILURE,
}


def _judge(ended: Finished, limit_s: float) -> tuple[Status, str]:
    if ended.timed_out:
        return Status.TIMEOUT, f"it did not end within {limit_s:g} s"
    if ended.code == 0:
        return Status.VERIFIED, ""
    said = _ERROR.findall(ended.errors)
    message = said[-1] if said else (ended.errors.splitlines() or ["it said nothing"])[-1]
    if _NO_MEMORY.search(ended.errors) or ended.code == -9:
        return Status.OUT_OF_MEMORY, message
    if ended.code < 0:
        return Status.CRASH, f"signal {-ended.code}: {message}"
    stage = _STAGE.search(ended.errors)
    if stage:
        return _STAGES[stage[1]], message
    return {1: Status.WRONG, 2: Status.UNAVAILABLE, 3: Status.UNAVAILABLE}.get(
        ended.code, Status.CRASH
    ), message
