"""``kernelmark kernelbench``: runs KernelBench's kernels one after the other. Parses, calls, prints.

What it does not know is read as an option of the command for one model, and handed on.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kernelmark.cli.exit_codes import ExitCode, exit_code_of
from kernelmark.cli.model import parse_model_command
from kernelmark.cli.suites import chosen_kernels, end_with, expected_statuses, limits_of
from kernelmark.device import resolve_device
from kernelmark.kernelbench.driver import (
    DEFAULT_MEMORY_BYTES,
    DEFAULT_TIME_S,
    DEFAULT_TIME_SMOKE_S,
    DriverOptions,
    KernelEnd,
    KernelPlan,
    drive,
    header_of,
    make_plan,
    worker_for,
)
from kernelmark.kernelbench.results import begin, finish, read_suite_run
from kernelmark.kernelbench.statuses import Outcome
from kernelmark.kernelbench.suite import Sizes
from kernelmark.kernelbench.tree import ADVICE, LEVELS, OWN, Chosen, check_tree

__all__ = ["kernelbench"]


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
    help=f"{OWN} (the models that come with kernelmark), {', '.join(LEVELS)}, or a YAML file; repeatable."
    f" Otherwise {OWN}, or with KernelBench's tree the levels that --kernel names.",
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
    "--sizes",
    type=click.Choice([each.value for each in Sizes]),
    default=Sizes.SUITE.value,
    show_default=True,
    help="Which sizes: the suite's own, or KernelBench's original ones.",
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
    help=f"Seconds that a kernel may take: otherwise {DEFAULT_TIME_S:g}, with --smoke-test {DEFAULT_TIME_SMOKE_S:g}.",
)
@click.option(
    "--memory",
    type=click.FloatRange(0.5),
    help=f"GiB of address space that it may take: otherwise {DEFAULT_MEMORY_BYTES >> 30}, on a CPU.",
)
@click.option(
    "--expect", type=click.Path(path_type=Path), help="A kept list of statuses that may not get worse."
)
@click.option("--keep", type=click.Path(path_type=Path), help="Write such a list.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/kernelbench"), show_default=True)
@click.option("--resume", is_flag=True, help="Go on with the run in --out, asked for in the same way.")
@click.option("--quiet", is_flag=True, help="A line for each kernel, and the summary.")
@click.pass_context
def kernelbench(ctx: click.Context, /, **given: Any) -> None:
    """Run the command."""
    if given["candidates"] is not None:
        from kernelmark.cli.candidates import run_candidates

        run_candidates(ctx, given)
    chosen = chosen_kernels(given)
    if given["check_root"]:
        _check_root(chosen)
        return
    expected = expected_statuses(given)
    options = _options(given, chosen.root, tuple(ctx.args))
    known = [option for each in ctx.command.params for option in each.opts]
    plans = make_plan(
        chosen.entries,
        options,
        lambda words: parse_model_command(words, program=ctx.command_path, also=known),
    )
    done = _begin(plans, options, resume=given["resume"])
    if chosen.fallen_back:
        click.echo(
            f"these are the models that come with kernelmark; as for KernelBench's, {ADVICE}",
            err=True,
        )
    outcomes = _run(plans, options, done, quiet=given["quiet"])
    click.echo()
    _report(options)
    end_with(outcomes, given, expected)


def _check_root(chosen: Chosen) -> None:
    found = check_tree(chosen.root, chosen.entries)
    for line in found.lines():
        click.echo(line)
    if not found.agrees:
        sys.exit(ExitCode.FAILED)


def _options(given: dict[str, Any], root: Path, extra: tuple[str, ...]) -> DriverOptions:
    device = resolve_device(given["device"])
    usual_s = DEFAULT_TIME_SMOKE_S if given["smoke_test"] else DEFAULT_TIME_S
    plain = ("out", "dtype", "benchmark", "torch_compile", "infer_shapes", "jobs")
    return DriverOptions(
        root=root,
        sizes=Sizes(given["sizes"]),
        smoke=given["smoke_test"],
        device=device,
        limits=limits_of(given, device, usual_s=usual_s),
        extra=extra,
        **{name: given[name] for name in plain},
    )


def _begin(plans: Sequence[KernelPlan], options: DriverOptions, *, resume: bool) -> tuple[Outcome, ...]:
    from kernelmark.harness.provenance import now, run_name

    command = (Path(sys.argv[0]).name, *sys.argv[1:])
    header = header_of(options, command, run=run_name(), started=now())
    return begin(options.out, header, [plan.entry.kernel for plan in plans], resume=resume)


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
    plans: Sequence[KernelPlan], options: DriverOptions, done: tuple[Outcome, ...], *, quiet: bool
) -> tuple[Outcome, ...]:
    kept = {outcome.kernel for outcome in done}
    total, number = len(plans), sum(plan.entry.kernel in kept for plan in plans)
    # several at a time would stand between one's command and its output
    at_once = options.jobs == 1

    def start(plan: KernelPlan) -> None:
        if at_once and not quiet:
            _show_command(plan)

    def end(ended: KernelEnd) -> None:
        nonlocal number
        number += 1
        if not quiet:
            if not at_once:
                _show_command(ended.plan)
            _show(ended)
        why = f": {ended.outcome.message}" if ended.outcome.message else ""
        click.echo(f"[{number}/{total}] {ended.outcome.kernel}: {ended.outcome.status}{why}")

    with worker_for(options) as worker:
        return drive(plans, options, worker, on_start=start, on_end=end, done=done)


def _show_command(plan: KernelPlan) -> None:
    click.echo(f"Running command: {shlex.join(('kernel-bench', *plan.words))}\n")


def _show(ended: KernelEnd) -> None:
    died = ended.death.code if ended.death is not None else None
    click.echo(f"STDOUT:\n{ended.output}")
    click.echo(f"STDERR:\n{ended.errors}")
    click.echo(f"Return code: {exit_code_of(ended.fate).value if died is None else died}\n")
