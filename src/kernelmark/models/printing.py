"""Writes what a model's run finds, line by line as it comes: modules, stages, and at the end what scripts read.

Where the lines go is the caller's to say: a terminal, or the log of a kernel's process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelmark.errors import KernelmarkError
from kernelmark.models.request import ModelRequest, Show
from kernelmark.models.run import ModelRun, run_model
from torchsched.failures import Stage
from torchsched.lowering import OnStep, unheard

__all__ = ["ModulePrinter", "print_model"]

Write = Callable[[str], object]


def print_model(
    request: ModelRequest, write: Write, *, command: Sequence[str] = (), on_step: OnStep = unheard
) -> ModelRun:
    """Run a model and write what becomes known of it; see :func:`kernelmark.models.run_model`.

    Args:
        request: What to do, and which modules to write.
        write: Gets a text without its line's end, and has written it when it returns: what follows may crash.
        command: The command line, for the record.
        on_step: Gets each stage and each step of the schedule as it begins.
    """
    printer = ModulePrinter(request.shown, write)
    try:
        found = run_model(
            request,
            command=command,
            tell=printer.line,
            observer=printer if request.shown else None,
            on_step=on_step,
        )
    except KernelmarkError as error:
        printer.finish()
        if (comparison := getattr(error, "comparison", None)) is not None:
            write(str(comparison))
        raise
    for line in found.lines():
        printer.line(line)
    return found


class ModulePrinter:
    """Gets each stage's name and the module's text; writes those that were asked for.

    Args:
        shown: Which.
        write: Gets a text.
    """

    def __init__(self, shown: Sequence[Show], write: Write) -> None:
        self.shown, self.write = shown, write
        self._last: tuple[str, str] | None = None
        self._written = False

    def __call__(self, name: str, text: str) -> None:
        """Take one stage."""
        first = _is_import(name)
        if first:
            self.finish()
        self._last = (name, text)
        self._written = Show.AFTER_ALL in self.shown or (first and Show.ORIGINAL in self.shown)
        if self._written:
            self._module(name, text)

    def line(self, text: str) -> None:
        """Write a line for the user, behind the modules that came before it."""
        self.finish()
        self.write(text)

    def finish(self) -> None:
        """Write the last module of a graph, where that was asked for and has not been done."""
        last, self._last = self._last, None
        if (
            last is not None
            and Show.OPTIMISED in self.shown
            and not self._written
            and not _is_import(last[0])
        ):
            self._module(*last)

    def _module(self, name: str, text: str) -> None:
        self.write(f"// ----- {name} -----\n{text}")


def _is_import(name: str) -> bool:
    return name.rpartition(": ")[2] == Stage.IMPORT
