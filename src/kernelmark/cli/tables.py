"""Puts a table on stdout, as wide as the terminal and with its colours where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["echo_table", "new_table"]

_FILE_WIDTH = 140
"""Columns of a table that goes to a file or a pipe: at 80 a note of 40 letters was folded to five a line."""


def new_table(*columns: str) -> Table:
    """Give a table without lines; its last column takes the room that is left, and wraps."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in columns[:-1]:
        table.add_column(name, no_wrap=True)
    table.add_column(columns[-1], overflow="fold")
    return table


def echo_table(table: Table) -> None:
    """Write ``table``; through click, since rich ends the process by itself where a pipe is closed."""
    from rich.console import Console

    console = Console(highlight=False, emoji=False, markup=False)
    if not console.is_terminal and console.width < _FILE_WIDTH:  # rich takes 80 where nobody looks
        console.width = _FILE_WIDTH
    with console.capture() as captured:
        console.print(table)
    click.echo(captured.get(), nl=False)
