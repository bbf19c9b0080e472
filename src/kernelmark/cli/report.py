"""``kernelmark report``: renders a stored run again. Parses, calls :mod:`kernelmark.report`, writes."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kernelmark.records import StoredRun, read_run
from kernelmark.report import Format, console_report, render, write_report

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
def report(run: Path, format_name: str, output: Path | None) -> None:
    """Render the stored run RUN again: its folder, or the records.jsonl in it."""
    stored = read_run(run)
    _warn(stored)
    chosen = Format(format_name)
    if output is not None:
        write_report(output, render(stored, chosen))
    elif chosen is Format.CONSOLE and sys.stdout.isatty():
        _show(stored)
    else:
        click.echo(render(stored, chosen), nl=False)


def _warn(stored: StoredRun) -> None:
    if stored.truncated:
        click.echo(f"warning: {stored.path} ends inside a line; that row is lost", err=True)
    if stored.end is None:
        click.echo("warning: the run was cut short: it has no end mark, so rows may be missing", err=True)


def _show(stored: StoredRun) -> None:
    from rich.console import Console

    console = Console(highlight=False, emoji=False, markup=False)
    console.print(console_report(stored, console.width))
