"""``kernelmark kernelbench --candidates DIR``: judges generated kernels. Parses, calls, prints, and counts.

Its own options are those that ``kernelmark kernelbench`` does not know.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from kernelmark.cli.exit_codes import ExitCode
from kernelmark.errors import UsageError
from kernelmark.isolation import Limits
from kernelmark.kernelbench.candidates.finding import Candidate, find_candidates
from kernelmark.kernelbench.candidates.job import Baseline, Mode, Settings, parse_baselines
from kernelmark.kernelbench.candidates.judged import Judged, read_judged
from kernelmark.kernelbench.candidates.judging import Judging, fingerprint_of, judge, workers_for
from kernelmark.kernelbench.driver import DEFAULT_MEMORY_BYTES, DEFAULT_TIME_TIMED_S
from kernelmark.kernelbench.statuses import Status, read_expected, worse_than, write_expected
from kernelmark.kernelbench.suite import Entry, Sizes
from kernelmark.records import Cache
from kernelmark.units import format_ratio

__all__ = ["run_candidates"]

Choose = Callable[[dict[str, Any]], tuple[tuple[Entry, ...], Path]]
_KEPT = "candidates.jsonl"
_OWN = "own"
_REFUSED = ("benchmark", "infer_shapes", "torch_compile", "smoke_test", "check_root")
"""Options that say how a model is compiled; a candidate is always timed, at the suite's sizes."""
_GIB = 1 << 30


@click.command(add_help_option=False)
@click.option("--seeds", default=5, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--mode", type=click.Choice([each.value for each in Mode]), default=Mode.TRAIN.value)
@click.option("--baselines", default="all")
@click.option("--iterations", default=100, show_default=True)
@click.option("--cache", type=click.Choice([each.value for each in Cache]), default=Cache.COLD.value)
@click.option("--tolerance", type=float)
@click.option("--atol", type=float)
@click.option("--rtol", type=float)
def _own_options(**given: Any) -> dict[str, Any]:
    return given


def run_candidates(ctx: click.Context, given: dict[str, Any], choose: Choose) -> None:
    """Judge the candidates of ``--candidates``.

    Args:
        ctx: The command's context; what is left in it are options of candidates.
        given: The command's options.
        choose: Gives the problems that options name, and the folder that holds their files.
    """
    settings = _settings(ctx, given)
    device = _device(ctx, given)
    candidates, root = _candidates(given, choose)
    judging = Judging(
        root,
        given["out"],
        settings=_on(settings, device),
        sizes=Sizes(given["sizes"]),
        limits=Limits(given["timeout"] or DEFAULT_TIME_TIMED_S, _memory(given["memory"], device)),
    )
    expected = read_expected(given["expect"]) if given["expect"] else None
    judged = _judge_all(candidates, judging, device, resume=given["resume"])
    _show(judged, judging, device)
    outcomes = [each.outcome for each in judged]
    if given["keep"]:
        write_expected(given["keep"], outcomes)
        click.echo(f"kept: {given['keep']}")
    worse = worse_than(expected or {}, outcomes)
    for line in worse if expected is not None else ():
        click.echo(f"worse: {line}", err=True)
    sys.exit(ExitCode.FAILED if worse else ExitCode.OK)


def _settings(ctx: click.Context, given: dict[str, Any]) -> Settings:
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
    with _own_options.make_context("--candidates", list(ctx.args), parent=ctx) as own:
        told = own.params
    return Settings(
        dtype=given["dtype"],
        mode=Mode(told.pop("mode")),
        cache=Cache(told.pop("cache")),
        baselines=tuple(map(Baseline, parse_baselines(told.pop("baselines")))),
        **told,
    )


def _device(ctx: click.Context, given: dict[str, Any]) -> str:
    """Give the device that is asked for; the best there is where nothing is."""
    from kernelmark.device import resolve_device

    asked = ctx.get_parameter_source("device") is click.core.ParameterSource.COMMANDLINE
    return resolve_device(given["device"] if asked else "auto")


def _on(settings: Settings, device: str) -> Settings:
    from dataclasses import replace

    return replace(settings, device=device)


def _memory(gib: float | None, device: str) -> int | None:
    if device == "cpu":
        return DEFAULT_MEMORY_BYTES if gib is None else int(gib * _GIB)
    if gib is not None:
        raise UsageError(
            f"--memory {gib:g} on {device}: the limit is one of address space, for CPUs; leave it out"
        )
    return None


def _candidates(given: dict[str, Any], choose: Choose) -> tuple[tuple[Candidate, ...], Path]:
    """Match the files with all problems of the suites, and keep those that are chosen."""
    own = tuple(given["suites"]) == (_OWN,)
    asked = {**given, "level": None} if own else given
    everything, root = choose({**asked, "kernels": (), "ci": False})
    chosen, _ = choose(asked)
    found = find_candidates(given["candidates"], everything, level=given["level"])
    wanted = {entry.kernel for entry in chosen}
    kept = tuple(each for each in found if each.entry.kernel in wanted)
    if not kept:
        raise UsageError(
            f"--candidates {given['candidates']}: none of its {len(found)} files is for a chosen kernel"
        )
    return kept, root


def _judge_all(
    candidates: Sequence[Candidate], judging: Judging, device: str, *, resume: bool
) -> tuple[Judged, ...]:
    judging.out.mkdir(parents=True, exist_ok=True)
    file = judging.out / _KEPT
    if not resume:
        file.unlink(missing_ok=True)
    known = read_judged(file)
    judged: list[Judged] = []
    with workers_for(device) as workers:
        for number, candidate in enumerate(candidates, start=1):
            one = known.get(candidate.name)
            if one is None or one.fingerprint != fingerprint_of(candidate, judging):
                one = judge(candidate, judging, workers)
                with open(file, "a", encoding="utf-8") as stream:
                    stream.write(one.to_json() + "\n")
            judged.append(one)
            click.echo(f"[{number}/{len(candidates)}] {_line(one)}")
    return tuple(judged)


def _line(judged: Judged) -> str:
    if judged.status is not Status.VERIFIED:
        return f"{judged.name}: {judged.status}: {judged.message}"
    ratios = [f"{format_ratio(r.value, r.low, r.high)} over {name}" for name, r in judged.speedups.items()]
    return f"{judged.name}: {judged.status}" + (f", {', '.join(ratios)}" if ratios else "")


def _show(judged: Sequence[Judged], judging: Judging, device: str) -> None:
    from kernelmark.kernelbench.candidates.page import candidates_page, write_pages
    from kernelmark.report.pages import page_text

    path = write_pages(judged, judging, device)
    click.echo()
    click.echo(page_text(candidates_page(judged, judging, device)))
    click.echo(f"the report is {path}")
