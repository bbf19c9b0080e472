"""``kernelmark merge``: one run of several. Parses, merges, writes the reports."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kernelmark.cli import console
from kernelmark.harness.provenance import now, run_name
from kernelmark.records import merge_runs, read_run
from kernelmark.report import write_reports

__all__ = ["merge"]


@click.command()
@click.argument("runs", type=console.PATH, nargs=-1, required=True)
@click.option(
    "--out", type=console.PATH, required=True, metavar="FOLDER", help="Where the merged run is kept."
)
def merge(runs: tuple[Path, ...], out: Path) -> None:
    """Put the rows of RUNS into one run: the shards of one, or a run and what was measured again.

    They must have been made alike. A case that failed is taken from a later run that has it as well; any other case
    may be in one of them only.
    """
    found = [read_run(run) for run in runs]
    merge_runs(found, out, name=run_name(out), command=tuple(sys.argv), ended=now())
    for path in write_reports(out):
        click.echo(f"{path.suffix[1:]}: {path}")
