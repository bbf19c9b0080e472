"""``kernelmark model tune``: searches a schedule's parameters for one model. Parses, calls, prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmark.cli.model_options import model_options, request_options
from kernelmark.cli.tables import echo_table, new_table
from kernelmark.errors import UsageError
from kernelmark.units import format_ratio, format_time

if TYPE_CHECKING:
    from kernelmark.models.tuning import Found, Line

__all__ = ["tune"]


@click.command("tune")
@click.argument("path", metavar="MODEL.py", type=click.Path(path_type=Path))
@model_options
@click.option(
    "--search",
    multiple=True,
    metavar="NAME[=VALUES]",
    help="Search this parameter, over all of its choices or over VALUES such as 4,6,8; may be repeated."
    " Otherwise every parameter that has choices and no --param.",
)
@click.option("--candidates", type=int, help="How many to try, the default among them.  [default: 32]")
@click.option(
    "--budget", type=float, help="Seconds for the search, without the confirmation.  [default: 600]"
)
@click.option(
    "--limit",
    type=float,
    help="Seconds to compile and check one candidate, and to measure it.  [default: 60]",
)
@click.option("--seed", default=0, show_default=True, help="What the order of the candidates is drawn with.")
@click.option(
    "--write", type=click.Path(path_type=Path), help="The descriptor; otherwise tuned.yaml in --out."
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder to keep the search in.")
@click.option("--resume", is_flag=True, help="Go on with the search in --out.")
def tune(path: Path, **given: Any) -> None:
    """Search the parameters of a schedule for MODEL.py, and write the best ones as a descriptor."""
    from kernelmark.models import ModelRequest
    from kernelmark.models.tuning import TuneRequest, tune_model

    numbers = {"candidates": given["candidates"], "budget_s": given["budget"], "limit_s": given["limit"]}
    request = TuneRequest(
        model=ModelRequest(path=path, **request_options(given)),
        search=_searched(given["search"]),
        seed=given["seed"],
        write=given["write"],
        out=given["out"],
        resume=given["resume"],
        **{name: value for name, value in numbers.items() if value is not None},
    )
    _show(tune_model(request, command=tuple(sys.argv), tell=click.echo))


def _searched(texts: Sequence[str]) -> dict[str, str | None]:
    searched: dict[str, str | None] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not name:
            raise UsageError(f"--search {text}: write NAME, or NAME=VALUES such as mr=4,6,8")
        if name in searched:
            raise UsageError(f"--search {name} is given twice; name all of its values in one")
        searched[name] = values if equals else None
    return searched


def _show(found: Found) -> None:
    from kernelmark.models.tuning.run import verdict

    table = new_table("", "candidate", "check", "time", "time / default's", "what became of it")
    for line in sorted(found.lines, key=_place):
        table.add_row(*_cells(line))
    click.echo()
    echo_table(table)
    click.echo(f"\n{verdict(found)}")
    click.echo(
        f"the descriptor is {found.descriptor}: kernelmark model MODEL.py --pipeline {found.descriptor}"
    )
    click.echo(f"the report is {found.folder / 'report.md'}")


def _place(line: Line) -> tuple[bool, float]:
    """Sort by time, those without one last."""
    timing = line.row.timing
    return timing is None, timing.device_busy.median_ns if timing else line.candidate.number


def _cells(line: Line) -> tuple[str, ...]:
    row = line.row
    busy = format_time(row.timing.device_busy.median_ns, 3) if row.timing else ""
    ratio = format_ratio(row.ratio.value, row.ratio.low, row.ratio.high) if row.ratio else ""
    return str(line.candidate.number), line.candidate.label, row.check.value, busy, ratio, line.fate
