"""Prints the modules that a model goes through, as they come, so that what crashes stands after the last one."""

from __future__ import annotations

import sys

import click

from torchsched.failures import Stage

__all__ = ["ModulePrinter"]


class ModulePrinter:
    """Gets each stage's name and the module's text; prints those that were asked for.

    Args:
        original: The module as imported.
        optimised: The module as it is after the last step.
        after_all: The module after every step.
    """

    def __init__(self, *, original: bool, optimised: bool, after_all: bool) -> None:
        self.original, self.optimised, self.after_all = original, optimised, after_all
        self._last: tuple[str, str] | None = None
        self._shown = False

    @property
    def wanted(self) -> bool:
        """Whether anything is to be printed."""
        return self.original or self.optimised or self.after_all

    def __call__(self, name: str, text: str) -> None:
        """Take one stage."""
        first = _is_import(name)
        if first:
            self.finish()
        self._last = (name, text)
        self._shown = self.after_all or (first and self.original)
        if self._shown:
            _print(name, text)

    def line(self, text: str) -> None:
        """Print a line for the user, behind the modules that came before it."""
        self.finish()
        click.echo(text)

    def finish(self) -> None:
        """Print the last module of a graph, where that was asked for and has not been done."""
        if self._last is not None and self.optimised and not self._shown and not _is_import(self._last[0]):
            _print(*self._last)
        self._last = None


def _is_import(name: str) -> bool:
    return name.rpartition(": ")[2] == Stage.IMPORT


def _print(name: str, text: str) -> None:
    click.echo(f"// ----- {name} -----\n{text}")
    sys.stdout.flush()  # a crash in the next step must not swallow it
