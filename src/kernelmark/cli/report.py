"""``kernelmark report``: renders a stored run again, or a suite's. Parses, calls what renders it, writes."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kernelmark.cli.exit_codes import ExitCode
from kernelmark.errors import UsageError
from kernelmark.records import StoredRun, read_run
from kernelmark.report import Format, console_report, render, write_report
from kernelmark.report.against import render_against

__all__ = ["report"]


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "format_name",
    type=click.Choice([each.value for each in Format]),
    default=Format.CONSOLE.value,
    show_default=True,
    help="How to write the report.",
)
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE, not to stdout."
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="What is not as it was in this other run; exits with 1 where that is worse.",
)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="KEY",
    help="With --against: what may differ although figures then mean something else, such as device.name.",
)
@click.pass_context
def report(
    context: click.Context,
    run: Path,
    format_name: str,
    output: Path | None,
    against: Path | None,
    ignored: tuple[str, ...],
) -> None:
    """Render the stored run RUN again: its folder, or the records.jsonl in it, or the folder of a suite's run."""
    from kernelmark.kernelbench.suite_report import is_suite_run

    chosen = Format(format_name)
    if ignored and against is None:
        raise UsageError("--ignore says what may differ between two runs; name the other with --against RUN")
    if is_suite_run(run):
        _suite(run, against, ignored, chosen, output)
        return
    stored = read_run(run)
    _warn(stored)
    if against is not None:
        if is_suite_run(against):
            raise UsageError(f"--against: {against} is a run of a suite, and {run} is none")
        text, worse = render_against(stored, read_run(against), chosen, ignore=ignored)
        _write(text, output)
        context.exit(ExitCode.FAILED if worse else ExitCode.OK)
    if output is not None:
        write_report(output, render(stored, chosen))
    elif chosen is Format.CONSOLE and sys.stdout.isatty():
        _show(stored)
    else:
        click.echo(render(stored, chosen), nl=False)


def _suite(
    run: Path, against: Path | None, ignored: tuple[str, ...], chosen: Format, output: Path | None
) -> None:
    from kernelmark.kernelbench.results import read_suite_run
    from kernelmark.kernelbench.suite_report import render_against, render_suite

    stored = read_suite_run(run)
    if stored.header.ended is None:
        click.echo("warning: the run did not come to its end, so kernels may be missing", err=True)
    text = (
        render_suite(stored, chosen)
        if against is None
        else render_against(stored, read_suite_run(against), chosen, ignore=ignored)
    )
    _write(text, output)


def _write(text: str, output: Path | None) -> None:
    if output is not None:
        write_report(output, text)
    else:
        click.echo(text, nl=False)


def _warn(stored: StoredRun) -> None:
    if stored.truncated:
        click.echo(f"warning: {stored.path} ends inside a line; that row is lost", err=True)
    if stored.end is None:
        click.echo("warning: the run was cut short: it has no end mark, so rows may be missing", err=True)


def _show(stored: StoredRun) -> None:
    from rich.console import Console

    console = Console(highlight=False, emoji=False, markup=False)
    console.print(console_report(stored, console.width))
