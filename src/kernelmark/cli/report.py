"""``kernelmark report``: renders a stored run again, or a suite's. Parses, calls what renders it, writes."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kernelmark.cli import console
from kernelmark.cli.exit_codes import ExitCode
from kernelmark.errors import UsageError
from kernelmark.records import read_run
from kernelmark.report import Format, console_report, render, write_report
from kernelmark.report.against import render_against

__all__ = ["report"]


@click.command()
@click.argument("run", type=console.PATH)
@click.option("--format", "format_name", **console.choice(Format.CONSOLE), help="How to write the report.")
@click.option("--output", type=console.PATH, metavar="FILE", help="Write to FILE, not to stdout.")
@click.option(
    "--against",
    type=console.PATH,
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
def report(
    run: Path, format_name: str, output: Path | None, against: Path | None, ignored: tuple[str, ...]
) -> None:
    """Render the stored run RUN again: its folder, or the records.jsonl in it, or the folder of a suite's run."""
    from kernelmark.kernelbench.suite_report import is_suite_run

    chosen = Format(format_name)
    if ignored and against is None:
        raise UsageError("--ignore says what may differ between two runs; name the other with --against RUN")
    if against is not None and is_suite_run(against) and not is_suite_run(run):
        raise UsageError(f"--against: {against} is a run of a suite, and {run} is none")
    text, worse = (_of_suite if is_suite_run(run) else _of_run)(run, against, ignored, chosen, output)
    if output is not None:
        write_report(output, text)
    else:
        click.echo(text, nl=False)
    if worse:
        sys.exit(ExitCode.FAILED)


def _of_run(
    run: Path, against: Path | None, ignored: tuple[str, ...], chosen: Format, output: Path | None
) -> tuple[str, bool]:
    """Give the report, and whether something is worse than in the other run; nothing is left of it for a terminal."""
    stored = read_run(run)
    if stored.truncated:
        click.echo(f"warning: {stored.path} ends inside a line; that row is lost", err=True)
    if stored.end is None:
        click.echo("warning: the run was cut short: it has no end mark, so rows may be missing", err=True)
    if against is not None:
        return render_against(stored, read_run(against), chosen, ignore=ignored)
    if output is not None or chosen is not Format.CONSOLE or not sys.stdout.isatty():
        return render(stored, chosen), False
    from rich.console import Console

    terminal = Console(highlight=False, emoji=False, markup=False)
    terminal.print(console_report(stored, terminal.width))
    return "", False


def _of_suite(
    run: Path, against: Path | None, ignored: tuple[str, ...], chosen: Format, output: Path | None
) -> tuple[str, bool]:
    from kernelmark.kernelbench.results import read_suite_run
    from kernelmark.kernelbench.suite_report import render_against, render_suite

    stored = read_suite_run(run)
    if stored.header.ended is None:
        click.echo("warning: the run did not come to its end, so kernels may be missing", err=True)
    if against is None:
        return render_suite(stored, chosen), False
    return render_against(stored, read_suite_run(against), chosen, ignore=ignored)
