"""``kernelmark kernelbench``: runs KernelBench's kernels one after the other, or judges generated ones.

Parses, calls :mod:`kernelmark.kernelbench`, prints. What it does not know is read as an option of the command for one
model, and handed on; with ``--candidates``, as one of theirs.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from kernelmark.cli import console
from kernelmark.cli.exit_codes import ExitCode, exit_code_of
from kernelmark.cli.model import parse_model_command
from kernelmark.cli.model_options import checking_options, timing_options
from kernelmark.device import resolve_device
from kernelmark.errors import UsageError
from kernelmark.isolation import Limits
from kernelmark.kernelbench import driver, results, statuses
from kernelmark.kernelbench.candidates.finding import Candidate, find_candidates
from kernelmark.kernelbench.candidates.job import Judging, Mode, Settings, parse_baselines
from kernelmark.kernelbench.candidates.judging import fingerprint_of, judge, workers_for
from kernelmark.kernelbench.candidates.page import KEPT, Judged, candidates_page, take_up, write_pages
from kernelmark.kernelbench.suite import Sizes, select
from kernelmark.kernelbench.tree import ADVICE, LEVELS, OWN, Chosen, check_tree, choose
from kernelmark.models import Baseline
from kernelmark.records import Cache
from kernelmark.report.pages import page_text
from kernelmark.text import listing

__all__ = ["kernelbench"]

_CI = (
    *("level1/1_", "level1/19_", "level1/23_", "level1/40_", "level1/47_", "level1/89_"),
    *("level2/9_", "level3/1_"),
)
"""One kernel of each of the pipelines that matter most, and one of each level."""
_FALLEN_BACK = f"these are the models that come with kernelmark; as for KernelBench's, {ADVICE}"


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
@click.option("--kernelbench-root", type=console.PATH, help="KernelBench's tree.")
@click.option(
    "--candidates",
    metavar="DIR",
    type=console.PATH,
    help="Judge the generated kernels (ModelNew) in this folder; --seeds, --tolerance, --baselines, --mode and more"
    " are told in docs/kernelbench.md.",
)
@click.option("--check-root", is_flag=True, help="Say how the tree differs from the suites, and stop.")
@click.option("--benchmark", is_flag=True, help="Also time each kernel, next to the baselines.")
@click.option("--dtype", default="f32", show_default=True, help="f32, bf16, f16, f64.")
@click.option("--infer-shapes", is_flag=True, help="Take sizes from the model files, not from the suite.")
@click.option(
    "--sizes",
    **console.choice(Sizes.SUITE),
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
    help=f"Seconds that a kernel may take: otherwise {driver.DEFAULT_TIME_S:g}, with --smoke-test"
    f" {driver.DEFAULT_TIME_SMOKE_S:g}.",
)
@click.option(
    "--memory",
    type=click.FloatRange(0.5),
    help=f"GiB of address space that it may take: otherwise {driver.DEFAULT_MEMORY_BYTES >> 30}, on a CPU.",
)
@click.option("--expect", type=console.PATH, help="A kept list of statuses that may not get worse.")
@click.option("--keep", type=console.PATH, help="Write such a list.")
@click.option("--out", type=console.PATH, default=Path("runs/kernelbench"), show_default=True)
@click.option("--resume", is_flag=True, help="Go on with the run in --out, asked for in the same way.")
@click.option("--quiet", is_flag=True, help="A line for each kernel, and the summary.")
@click.pass_context
def kernelbench(ctx: click.Context, /, **given: Any) -> None:
    """Run the command."""
    (_suite if given["candidates"] is None else _candidates)(ctx, given)


# --- what both have in common


def _chosen(given: Mapping[str, Any]) -> Chosen:
    """Give the entries that the options name, and the folder that holds their files."""
    suites = [*given["suites"], *([f"level{given['level']}"] if given["level"] is not None else [])]
    if given["check_root"] and not suites:
        suites = list(LEVELS)
    found = choose(suites, root=given["kernelbench_root"], kernels=given["kernels"])
    prefixes = list(given["kernels"])
    if given["ci"]:
        short = [each for each in _CI if any(entry.kernel.startswith(each) for entry in found.entries)]
        if not short:
            raise UsageError(
                f"--ci: the suite has none of {listing(_CI)}; leave it out, or name some by --kernel"
            )
        prefixes += short
    hint = _FALLEN_BACK if found.fallen_back else ""
    return Chosen(select(found.entries, prefixes, hint=hint), found.root, found.fallen_back)


def _limits(given: Mapping[str, Any], device: str, *, usual_s: float) -> Limits:
    """Give what a kernel's process may take."""
    gib = given["memory"]
    if device != "cpu" and gib is not None:
        raise UsageError(
            f"--memory {gib:g} with --device {device}: the limit is one of address space, of which a GPU's driver"
            " maps as much as there is memory of all kinds; leave --memory out"
        )
    usual = driver.DEFAULT_MEMORY_BYTES if device == "cpu" else None
    return Limits(given["timeout"] or usual_s, usual if gib is None else int(gib * (1 << 30)))


def _expected(given: Mapping[str, Any]) -> dict[str, statuses.Status] | None:
    return statuses.read_expected(given["expect"]) if given["expect"] else None


def _end_with(
    outcomes: Sequence[statuses.Outcome],
    given: Mapping[str, Any],
    expected: Mapping[str, statuses.Status] | None,
) -> NoReturn:
    """Count the outcomes, keep a list where that was asked for, and end with what they mean."""
    for line in statuses.summary(outcomes):
        click.echo(line)
    if given["keep"]:
        statuses.write_expected(given["keep"], outcomes)
        click.echo(f"kept: {given['keep']}")
    worse = statuses.worse_than(expected or {}, outcomes)
    for line in worse if expected is not None else ():
        click.echo(f"worse: {line}", err=True)
    sys.exit(ExitCode.FAILED if worse else ExitCode.OK)


# --- a suite's kernels


def _suite(ctx: click.Context, given: dict[str, Any]) -> None:
    chosen = _chosen(given)
    if given["check_root"]:
        found = check_tree(chosen.root, chosen.entries)
        for line in found.lines():
            click.echo(line)
        if not found.agrees:
            sys.exit(ExitCode.FAILED)
        return
    expected = _expected(given)
    options = _options(given, chosen.root, tuple(ctx.args))
    known = [option for each in ctx.command.params for option in each.opts]
    plans = driver.make_plan(
        chosen.entries,
        options,
        lambda words: parse_model_command(words, program=ctx.command_path, also=known),
    )
    done = _begin(plans, options, resume=given["resume"])
    if chosen.fallen_back:
        click.echo(_FALLEN_BACK, err=True)
    outcomes = _run(plans, options, done, quiet=given["quiet"])
    click.echo()
    _report(options)
    _end_with(outcomes, given, expected)


def _options(given: dict[str, Any], root: Path, extra: tuple[str, ...]) -> driver.DriverOptions:
    device = resolve_device(given["device"])
    usual_s = driver.DEFAULT_TIME_SMOKE_S if given["smoke_test"] else driver.DEFAULT_TIME_S
    plain = ("out", "dtype", "benchmark", "torch_compile", "infer_shapes", "jobs")
    return driver.DriverOptions(
        root=root,
        sizes=Sizes(given["sizes"]),
        smoke=given["smoke_test"],
        device=device,
        limits=_limits(given, device, usual_s=usual_s),
        extra=extra,
        **{name: given[name] for name in plain},
    )


def _begin(
    plans: Sequence[driver.KernelPlan], options: driver.DriverOptions, *, resume: bool
) -> tuple[statuses.Outcome, ...]:
    from kernelmark.harness.provenance import now, run_name

    command = (Path(sys.argv[0]).name, *sys.argv[1:])
    header = driver.header_of(options, command, run=run_name(), started=now())
    return results.begin(options.out, header, [plan.entry.kernel for plan in plans], resume=resume)


def _report(options: driver.DriverOptions) -> None:
    """Keep the reports beside the run, and show it where there are times to show."""
    from kernelmark.harness.provenance import now
    from kernelmark.kernelbench.suite_report import render_suite, write_suite_reports
    from kernelmark.report import Format

    results.finish(options.out, now())
    page, *_ = write_suite_reports(options.out)
    if options.benchmark:
        click.echo(render_suite(results.read_suite_run(options.out), Format.CONSOLE))
    click.echo(f"the report is {page}")


def _run(
    plans: Sequence[driver.KernelPlan],
    options: driver.DriverOptions,
    done: tuple[statuses.Outcome, ...],
    *,
    quiet: bool,
) -> tuple[statuses.Outcome, ...]:
    kept = {outcome.kernel for outcome in done}
    total, number = len(plans), sum(plan.entry.kernel in kept for plan in plans)
    # several at a time would stand between one's command and its output
    at_once = options.jobs == 1

    def command(plan: driver.KernelPlan) -> None:
        click.echo(f"Running command: {shlex.join(('kernel-bench', *plan.words))}\n")

    def start(plan: driver.KernelPlan) -> None:
        if at_once and not quiet:
            command(plan)

    def end(ended: driver.KernelEnd) -> None:
        nonlocal number
        number += 1
        if not quiet:
            if not at_once:
                command(ended.plan)
            died = ended.death.code if ended.death is not None else None
            click.echo(f"STDOUT:\n{ended.output}")
            click.echo(f"STDERR:\n{ended.errors}")
            click.echo(f"Return code: {exit_code_of(ended.fate).value if died is None else died}\n")
        why = f": {ended.outcome.message}" if ended.outcome.message else ""
        click.echo(f"[{number}/{total}] {ended.outcome.kernel}: {ended.outcome.status}{why}")

    with driver.worker_for(options) as worker:
        return driver.drive(plans, options, worker, on_start=start, on_end=end, done=done)


# --- candidates

_REFUSED = ("benchmark", "infer_shapes", "torch_compile", "smoke_test", "check_root")
"""Options that say how a model is compiled; a candidate is always timed, at the suite's sizes."""


@click.command(add_help_option=False)
@click.option("--seeds", default=5)
@click.option("--mode", **console.choice(Mode.TRAIN))
@timing_options
@checking_options
def _own_options(**given: Any) -> dict[str, Any]:
    """Read what is left in the command's context: options of candidates."""
    return given


def _candidates(ctx: click.Context, given: Mapping[str, Any]) -> None:
    """Judge the candidates of ``--candidates``."""
    settings = _settings(ctx, given)
    candidates, root = _found(given)
    device = settings.device
    limits = _limits(given, device, usual_s=driver.DEFAULT_TIME_S)
    judging = Judging(root, given["out"], settings=settings, sizes=Sizes(given["sizes"]), limits=limits)
    expected = _expected(given)
    judged = _judge_all(candidates, judging, device, resume=given["resume"])
    path = write_pages(judged, judging, device)
    click.echo()
    click.echo(page_text(candidates_page(judged, judging, device)))
    click.echo(f"the report is {path}")
    _end_with([each.outcome for each in judged], given, expected)


def _settings(ctx: click.Context, given: Mapping[str, Any]) -> Settings:
    for name in _REFUSED:
        if given[name]:
            raise UsageError(
                f"--{name.replace('_', '-')} with --candidates: candidates are checked and timed as they are, at"
                " the suite's sizes; leave it out"
            )
    if given["jobs"] > 1:
        raise UsageError(
            f"--jobs {given['jobs']} with --candidates: what is timed needs the machine to itself"
        )
    try:
        with _own_options.make_context("--candidates", list(ctx.args), parent=ctx) as own:
            told = own.params
    except click.UsageError as error:
        raise UsageError(f"with --candidates: {error.format_message()}") from None
    names = parse_baselines(told.pop("baselines"))
    if others := [name for name in names if name not in list(Baseline)]:
        raise UsageError(
            f"--baselines {others[0]} with --candidates: they are timed next to {', '.join(Baseline)}"
        )
    asked = ctx.get_parameter_source("device") is click.core.ParameterSource.COMMANDLINE
    return Settings(
        dtype=given["dtype"],
        device=resolve_device(given["device"] if asked else "auto"),  # the best there is
        mode=Mode(told.pop("mode")),
        cache=Cache(told.pop("cache")),
        baselines=tuple(map(Baseline, names)),
        **told,
    )


def _found(given: Mapping[str, Any]) -> tuple[tuple[Candidate, ...], Path]:
    """Match the files with all problems of the suites, and keep those that are chosen."""
    asked = {**given, "level": None if tuple(given["suites"]) == (OWN,) else given["level"]}
    everything = _chosen({**asked, "kernels": (), "ci": False}).entries
    chosen = _chosen(asked)
    found = find_candidates(given["candidates"], everything, level=given["level"])
    wanted = {entry.kernel for entry in chosen.entries}
    kept = tuple(each for each in found if each.entry.kernel in wanted)
    if not kept:
        raise UsageError(
            f"--candidates {given['candidates']}: none of its {len(found)} files is for a chosen kernel"
        )
    return kept, chosen.root


def _judge_all(
    candidates: Sequence[Candidate], judging: Judging, device: str, *, resume: bool
) -> tuple[Judged, ...]:
    known = take_up(judging.out, judging.asked, resume=resume)
    judged: list[Judged] = []
    with workers_for(device) as workers:
        for number, candidate in enumerate(candidates, start=1):
            one = known.get(candidate.name)
            if one is None or one.fingerprint != fingerprint_of(candidate, judging):
                one = judge(candidate, judging, workers)
                with open(judging.out / KEPT, "a", encoding="utf-8") as stream:
                    stream.write(one.to_json() + "\n")
            judged.append(one)
            told = f": {one.message}"
            if one.status is statuses.Status.VERIFIED:
                told = "".join(f", {ratio} over {name}" for name, ratio in one.speedups.items())
            click.echo(f"[{number}/{len(candidates)}] {one.name}: {one.status}{told}")
    return tuple(judged)
