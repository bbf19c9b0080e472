"""``kernelmark kernelbench --candidates DIR``: judges generated kernels. Parses, calls, prints, and counts.

Its own options are those that ``kernelmark kernelbench`` does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from kernelmark.cli.model_options import checking_options, timing_options
from kernelmark.cli.suites import chosen_kernels, end_with, expected_statuses, limits_of
from kernelmark.device import resolve_device
from kernelmark.errors import UsageError
from kernelmark.kernelbench.candidates.finding import Candidate, find_candidates
from kernelmark.kernelbench.candidates.job import Judging, Mode, Settings, parse_baselines
from kernelmark.kernelbench.candidates.judging import fingerprint_of, judge, workers_for
from kernelmark.kernelbench.candidates.page import KEPT, Judged, take_up
from kernelmark.kernelbench.driver import DEFAULT_TIME_S
from kernelmark.kernelbench.statuses import Status
from kernelmark.kernelbench.suite import Sizes
from kernelmark.kernelbench.tree import OWN
from kernelmark.models import Baseline
from kernelmark.records import Cache
from kernelmark.units import format_ratio

__all__ = ["run_candidates"]

_REFUSED = ("benchmark", "infer_shapes", "torch_compile", "smoke_test", "check_root")
"""Options that say how a model is compiled; a candidate is always timed, at the suite's sizes."""


@click.command(add_help_option=False)
@click.option("--seeds", default=5, show_default=True)
@click.option("--mode", type=click.Choice([each.value for each in Mode]), default=Mode.TRAIN.value)
@timing_options
@checking_options
def _own_options(**given: Any) -> dict[str, Any]:
    return given


def run_candidates(ctx: click.Context, given: Mapping[str, Any]) -> NoReturn:
    """Judge the candidates of ``--candidates``.

    Args:
        ctx: The command's context; what is left in it are options of candidates.
        given: The command's options.
    """
    settings = _settings(ctx, given)
    candidates, root = _candidates(given)
    device = settings.device
    judging = Judging(
        root,
        given["out"],
        settings=settings,
        sizes=Sizes(given["sizes"]),
        limits=limits_of(given, device, usual_s=DEFAULT_TIME_S),
    )
    expected = expected_statuses(given)
    judged = _judge_all(candidates, judging, device, resume=given["resume"])
    _show(judged, judging, device)
    end_with([each.outcome for each in judged], given, expected)


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


def _candidates(given: Mapping[str, Any]) -> tuple[tuple[Candidate, ...], Path]:
    """Match the files with all problems of the suites, and keep those that are chosen."""
    asked = {**given, "level": None if tuple(given["suites"]) == (OWN,) else given["level"]}
    everything = chosen_kernels({**asked, "kernels": (), "ci": False}).entries
    chosen = chosen_kernels(asked)
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
