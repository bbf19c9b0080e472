"""``kernelmark kernelbench``: runs KernelBench's kernels one after the other. Parses, calls, prints, and counts.

What it does not know is handed on to the command for one model.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kernelmark.cli.exit_codes import ExitCode
from kernelmark.errors import UsageError
from kernelmark.kernelbench.driver import (
    DEFAULT_MEMORY_BYTES,
    DEFAULT_TIME_S,
    DEFAULT_TIME_SMOKE_S,
    DEFAULT_TIME_TIMED_S,
    DriverOptions,
    Ended,
    drive,
    header_of,
)
from kernelmark.kernelbench.results import begin, finish, read_suite_run
from kernelmark.kernelbench.statuses import (
    Outcome,
    Status,
    read_expected,
    summary,
    worse_than,
    write_expected,
)
from kernelmark.kernelbench.suite import Entry, Sizes, load_suite, select
from kernelmark.kernelbench.tree import VARIABLE, check_tree, find_tree
from kernelmark.prefork import Limits, Prefork

__all__ = ["kernelbench"]

_TARGET = "kernelmark.cli:kernel_bench"
_DIALECTS = (
    *("arith", "bufferization", "builtin", "complex", "linalg", "llvm", "math", "memref", "scf", "tensor"),
    "transform.interpreter",
)
_PRELOAD = (
    *("torch._dynamo", "torch.export._trace", "torch.export._unlift", "torch.fx.experimental.validator"),
    *("torch_mlir.fx", "torch_mlir.execution_engine", *(f"torch_mlir.dialects.{name}" for name in _DIALECTS)),
    *("kernelmark.cli.model", "kernelmark.device.cpu", "kernelmark.report"),
    *("kernelmark.models.run", "torchsched.threads", "torchsched.aliasing"),
    *("torchsched.result_copies", "torchsched.ingress.flops"),
)
"""What every kernel's process would import by itself otherwise: 0.13 s of the 1.25 s of processor that a small one
takes."""
_ENVIRONMENT = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""Lets torch count GPUs without opening the driver, which a process that is forked afterwards could not use."""
_ASLEEP = {"OMP_WAIT_POLICY": "passive"}
"""What threads do that wait for others, where nothing is timed: two kernels at once have twice as many threads as
there are cores, and one that spins keeps the core from the one it waits for. A ReLU did not end within 120 s
beside other work."""
_OWN = "own"
_LEVELS = ("level1", "level2", "level3")
_CI = (
    "level1/1_",
    "level1/19_",
    "level1/23_",
    "level1/40_",
    "level1/47_",
    "level1/89_",
    "level2/9_",
    "level3/1_",
)
"""One kernel of each of the pipelines that matter most, and one of each level."""
_GIB = 1 << 30


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    help="Run KernelBench's kernels, each in a process of its own, and say what became of each.",
    epilog="Options that are not known here go to `kernelmark model` as they are.",
)
@click.option(
    "--kernel", "kernels", multiple=True, metavar="PREFIX", help="Only names that start so; repeatable."
)
@click.option(
    "--suite",
    "suites",
    multiple=True,
    metavar="NAME|FILE",
    help=f"{_OWN} (the models that come with kernelmark), {', '.join(_LEVELS)}, or a YAML file; repeatable."
    f" Otherwise {_OWN}, or with KernelBench's tree the levels that --kernel names.",
)
@click.option("--level", type=click.IntRange(1, 3), help="KernelBench's level.")
@click.option("--kernelbench-root", type=click.Path(path_type=Path), help="KernelBench's tree.")
@click.option(
    "--candidates",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Judge the generated kernels (ModelNew) in this folder; --seeds, --tolerance, --baselines, --mode and more"
    " are told in docs/kernelbench.md.",
)
@click.option("--check-root", is_flag=True, help="Say how the tree differs from the suites, and stop.")
@click.option("--benchmark", is_flag=True, help="Also time each kernel, next to the baselines.")
@click.option("--dtype", default="f32", show_default=True, help="f32, bf16, f16, f64.")
@click.option("--infer-shapes", is_flag=True, help="Take sizes from the model files, not from the suite.")
@click.option(
    "--sizes", type=click.Choice(list(Sizes)), default=Sizes.SUITE, show_default=True, help="Which sizes."
)
@click.option("--torch-compile", is_flag=True, help="Compile through torch.compile.")
@click.option("--smoke-test", is_flag=True, help="Run every kernel with the plain lowering to loops.")
@click.option("--ci", is_flag=True, help="Only a short list: one kernel of each kind.")
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    help="cpu, cuda, or auto: a GPU has no MLIR, but the others.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Kernels at a time; one of them is timed, and the others are held meanwhile.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(1),
    help=f"Seconds that a kernel may take: otherwise {DEFAULT_TIME_S:g}, with --benchmark {DEFAULT_TIME_TIMED_S:g},"
    f" with --smoke-test {DEFAULT_TIME_SMOKE_S:g}.",
)
@click.option(
    "--memory",
    type=click.FloatRange(0.5),
    help=f"GiB of address space that it may take: otherwise {DEFAULT_MEMORY_BYTES // _GIB}, on a CPU.",
)
@click.option(
    "--expect", type=click.Path(path_type=Path), help="A kept list of statuses that may not get worse."
)
@click.option("--keep", type=click.Path(path_type=Path), help="Write such a list.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/kernelbench"), show_default=True)
@click.option("--resume", is_flag=True, help="Go on with the run in --out.")
@click.option("--quiet", is_flag=True, help="A line for each kernel, and the summary.")
@click.pass_context
def kernelbench(ctx: click.Context, /, **given: Any) -> None:
    """Run the command."""
    if given["candidates"] is not None:
        from kernelmark.cli.candidates import run_candidates

        run_candidates(ctx, given, _chosen)
        return
    entries, root = _chosen(given)
    if given["check_root"]:
        _check_root(root, entries)
        return
    expected = read_expected(given["expect"]) if given["expect"] else None
    options = _options(given, root, tuple(ctx.args))
    done = _begin(entries, options, resume=given["resume"])
    outcomes = _run(entries, options, done, quiet=given["quiet"])
    click.echo()
    _report(options)
    for line in summary(outcomes):
        click.echo(line)
    if given["keep"]:
        write_expected(given["keep"], outcomes)
        click.echo(f"kept: {given['keep']}")
    sys.exit(_code(outcomes, expected))


def _chosen(given: dict[str, Any]) -> tuple[tuple[Entry, ...], Path]:
    """Give the entries to run, and the folder that holds their files."""
    names = _suites(given)
    if _OWN in names and len(names) > 1:
        raise UsageError(f"--suite {_OWN} has files of its own; run it by itself")
    folder = _suites_folder()
    files = [folder / f"{name}.yaml" if name in (_OWN, *_LEVELS) else Path(name) for name in names]
    entries = tuple(entry for file in files for entry in load_suite(file).entries)
    root = folder / "models" if names == [_OWN] else find_tree(given["kernelbench_root"])
    prefixes = list(given["kernels"])
    if given["ci"]:
        known = [entry.kernel for entry in entries]
        prefixes += [each for each in _CI if any(name.startswith(each) for name in known)]
    return select(entries, prefixes), root


def _suites(given: dict[str, Any]) -> list[str]:
    """Name the suites: those asked for, the levels that kernels are named of, all where there is a tree, or our own."""
    names = [*given["suites"], *([f"level{given['level']}"] if given["level"] is not None else [])]
    if names:
        return names
    if not (given["kernelbench_root"] or os.environ.get(VARIABLE) or given["check_root"]):
        return [_OWN]
    named = [level for level in _LEVELS if any(kernel.startswith(level) for kernel in given["kernels"])]
    return named or list(_LEVELS)


def _suites_folder() -> Path:
    """Give the folder of the shipped suites: the checkout's, or the one inside the installed package."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package.parents[1] / "examples" / "KernelBench", package / "kernelbench" / "suites"):
        if (folder / f"{_OWN}.yaml").is_file():
            return folder
    raise UsageError("the suites that come with kernelmark are not there; name a suite's file with --suite")


def _check_root(root: Path, entries: Sequence[Entry]) -> None:
    found = check_tree(root, entries)
    for line in found.lines():
        click.echo(line)
    if not found.agrees:
        sys.exit(ExitCode.FAILED)


def _options(given: dict[str, Any], root: Path, extra: tuple[str, ...]) -> DriverOptions:
    device = _device(given["device"])
    usual_s = DEFAULT_TIME_TIMED_S if given["benchmark"] else DEFAULT_TIME_S
    limit_s = given["timeout"] or (DEFAULT_TIME_SMOKE_S if given["smoke_test"] else usual_s)
    return DriverOptions(
        root=root,
        out=given["out"],
        dtype=given["dtype"],
        sizes=Sizes(given["sizes"]),
        benchmark=given["benchmark"],
        smoke=given["smoke_test"],
        torch_compile=given["torch_compile"],
        infer_shapes=given["infer_shapes"],
        jobs=given["jobs"],
        device=device,
        limits=Limits(time_s=limit_s, memory_bytes=_memory(given["memory"], device)),
        extra=extra,
    )


def _device(name: str) -> str:
    """Give the device by its own name; only ``auto`` needs torch to tell."""
    if name == "cpu":
        return name
    from kernelmark.device import resolve_device

    return resolve_device(name)


def _memory(gib: float | None, device: str) -> int | None:
    if device == "cpu":
        return DEFAULT_MEMORY_BYTES if gib is None else int(gib * _GIB)
    if gib is not None:
        raise UsageError(
            f"--memory {gib:g} with --device {device}: the limit is one of address space, of which a GPU's driver"
            " maps as much as there is memory of all kinds; leave --memory out"
        )
    return None


def _begin(entries: Sequence[Entry], options: DriverOptions, *, resume: bool) -> tuple[Outcome, ...]:
    from kernelmark.harness.provenance import now, run_name

    command = (Path(sys.argv[0]).name, *sys.argv[1:])
    header = header_of(options, command, run=run_name(), started=now())
    return begin(options.out, header, [entry.kernel for entry in entries], resume=resume)


def _report(options: DriverOptions) -> None:
    """Keep the reports beside the run, and show it where there are times to show."""
    from kernelmark.harness.provenance import now
    from kernelmark.kernelbench.suite_report import render_suite, write_suite_reports
    from kernelmark.report import Format

    finish(options.out, now())
    page, *_ = write_suite_reports(options.out)
    if options.benchmark:
        click.echo(render_suite(read_suite_run(options.out), Format.CONSOLE))
    click.echo(f"the report is {page}")


def _run(
    entries: Sequence[Entry], options: DriverOptions, done: tuple[Outcome, ...], *, quiet: bool
) -> tuple[Outcome, ...]:
    total, number = len(entries), len([o for o in done if any(o.kernel == e.kernel for e in entries)])

    def show(ended: Ended) -> None:
        nonlocal number
        number += 1
        if not quiet:
            _show(ended)
        why = f": {ended.outcome.message}" if ended.outcome.message else ""
        click.echo(f"[{number}/{total}] {ended.entry.kernel}: {ended.outcome.status}{why}")

    environment = _ENVIRONMENT if options.benchmark else {**_ENVIRONMENT, **_ASLEEP}
    with Prefork(_TARGET, preload=_PRELOAD, environment=environment) as server:
        return drive(entries, options, server, on_end=show, done=done)


def _show(ended: Ended) -> None:
    click.echo(f"Running command: kernel-bench {shlex.join(ended.arguments)}\n")
    click.echo(f"STDOUT:\n{ended.output}")
    click.echo(f"STDERR:\n{ended.errors}")
    click.echo(f"Return code: {ended.code}\n")


def _code(outcomes: Sequence[Outcome], expected: dict[str, Status] | None) -> ExitCode:
    worse = worse_than(expected or {}, outcomes)
    for line in worse if expected is not None else ():
        click.echo(f"worse: {line}", err=True)
    return ExitCode.FAILED if worse else ExitCode.OK
