"""Renders a stored run in one of the formats, and keeps the reports beside its records."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from kernelmark.errors import RecordError
from kernelmark.files import replace
from kernelmark.records import StoredRun, read_run
from kernelmark.report.console import console_report, plain_text
from kernelmark.report.csv_ import csv_report
from kernelmark.report.json_ import json_report
from kernelmark.report.markdown import markdown_report

__all__ = ["Format", "render", "write_report", "write_reports"]


class Format(StrEnum):
    """The formats of a report."""

    CONSOLE = "console"
    MARKDOWN = "markdown"
    JSON = "json"
    CSV = "csv"


_RENDERERS: dict[Format, Callable[[StoredRun], str]] = {
    Format.CONSOLE: lambda run: plain_text(console_report(run)) + "\n",
    Format.MARKDOWN: markdown_report,
    Format.JSON: json_report,
    Format.CSV: lambda run: csv_report(run.rows),
}
_FILES = {Format.MARKDOWN: "report.md", Format.JSON: "report.json", Format.CSV: "report.csv"}


def render(run: StoredRun, format: Format) -> str:  # noqa: A002 - the word the command line uses too
    """Write ``run`` in ``format``; a console is taken to be as wide as needed, and without colour."""
    return _RENDERERS[format](run)


def write_reports(folder: Path) -> list[Path]:
    """Write ``report.md``, ``report.json`` and ``report.csv`` beside the records in ``folder``.

    Raises:
        RecordError: there is no run in ``folder``, or a report cannot be written.
    """
    run = read_run(folder)
    return [write_report(Path(folder) / name, render(run, each)) for each, name in _FILES.items()]


def write_report(path: Path, text: str) -> Path:
    """Write ``text`` to ``path``: all of it, or nothing and the file that was there before.

    Raises:
        RecordError: the file cannot be written.
    """
    try:
        if path.exists() and not path.is_file():
            # a device or a pipe such as /dev/stdout is written to, never replaced
            path.write_text(text, encoding="utf-8", newline="\n")
        else:
            replace(path.resolve(), text)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror}; choose another place") from error
    return path
