"""What commands share of the terminal: tables and JSON on stdout, and the options that mean the same everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["PATH", "as_json", "choice", "device", "echo_json", "echo_table"]

_FILE_WIDTH = 140
"""Columns of a table that goes to a file or a pipe: at 80 a note of 40 letters was folded to five a line."""

PATH = click.Path(path_type=Path)
as_json = click.option("--json", "as_json", is_flag=True, help="Write JSON.")
device = click.option(
    "--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...; auto is the best."
)


def choice(default: StrEnum) -> dict[str, Any]:
    """Give the arguments of an option that takes one of the values of the default's class."""
    values = [each.value for each in type(default)]
    return {"type": click.Choice(values), "default": default.value, "show_default": True}


def echo_json(value: object) -> None:
    """Write ``value`` as JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def echo_table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Write a table without lines, as wide as the terminal; the last column takes the room that is left, and wraps.

    Through click, since rich ends the process by itself where a pipe is closed.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in columns[:-1]:
        table.add_column(name, no_wrap=True)
    table.add_column(columns[-1], overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False, emoji=False, markup=False)
    if not console.is_terminal and console.width < _FILE_WIDTH:  # rich takes 80 where nobody looks
        console.width = _FILE_WIDTH
    with console.capture() as captured:
        console.print(table)
    click.echo(captured.get(), nl=False)
