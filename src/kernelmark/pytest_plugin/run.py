"""One pytest run's session: where it is kept, what it prints."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelmark.errors import KernelmarkError, UsageError
from kernelmark.harness.provenance import run_name
from kernelmark.harness.session import Session, SessionOptions
from kernelmark.records import Cache, Row, RunHeader
from kernelmark.report import check_lines, console_text, junit_properties, progress_line, write_reports
from kernelmark.timing import Budget

__all__ = ["BenchmarkRun"]


class BenchmarkRun:
    """The session of one pytest run, and the lines it prints."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.interrupted = False
        self.write_error: str | None = None
        self._printed = 0
        self._finished = False
        self._terminal: Any = None

    @classmethod
    def of(cls, config: pytest.Config, *, is_worker: bool) -> BenchmarkRun:
        """Build the run that the command line asks for.

        Args:
            config: pytest's.
            is_worker: Whether this is a worker of pytest-xdist, which checks, and leaves recording to the process
                that started it.

        Raises:
            pytest.UsageError: the options contradict each other, or pytest runs tests in parallel.
        """
        if is_worker and not config.getoption("kernelmark_verify"):
            raise pytest.UsageError(
                "kernelmark cannot time under pytest-xdist: the workers would disturb each other;"
                " leave out -n, or add --kernelmark-verify to check only"
            )
        try:
            options = _options(config)
            command = ("pytest", *map(str, config.invocation_params.args))
            resumed = config.getoption("--kernelmark-resume")
            if resumed and not is_worker:
                session = Session.resume(Path(resumed), options, command=command)
            else:
                session = Session(replace(options, out=None) if is_worker else options, command=command)
        except KernelmarkError as error:
            raise pytest.UsageError(str(error)) from error
        run = cls(session)
        run._printed = len(session.rows)
        run._terminal = config.pluginmanager.get_plugin("terminalreporter")
        return run

    def require_usable(self) -> None:
        """Find out whether device, timer and folder can be had.

        Raises:
            pytest.UsageError: one of them cannot.
        """
        try:
            self.session.require_usable()
        except KernelmarkError as error:
            raise pytest.UsageError(str(error)) from error

    def packed(self, rows: Sequence[Row]) -> list[str]:
        """Give rows, after the header of their run, as text for another process."""
        header = self.session.header
        return [header.model_dump_json(), *(row.model_dump_json() for row in rows)] if header and rows else []

    def record(self, packed: Sequence[str]) -> None:
        """Record what :meth:`packed` gave in a worker; the first worker's header describes the run."""
        header, *rows = packed
        try:
            self.session.describe_as(RunHeader.model_validate_json(header))
            for row in rows:
                self.session.record(Row.model_validate_json(row))
        except KernelmarkError as error:
            self.write_error = str(error)

    def attach(self, item: pytest.Item, rows: list[Row]) -> None:
        """Give a test's rows to JUnit as properties."""
        for row in rows:
            item.user_properties.extend(junit_properties(row))

    def released(self) -> None:
        """Give back the memory of the case that just ended."""
        gc.collect()
        if self.session.header is not None:
            self.session.device.release_memory()

    def unprinted(self) -> bool:
        """Whether there are rows that no progress line has shown yet."""
        return len(self.session.rows) > self._printed

    def progress(self) -> None:
        """Write one line for the rows made since the last one."""
        rows = self.session.rows[self._printed :]
        self._printed = len(self.session.rows)
        if rows and self._terminal is not None:
            self._terminal.ensure_newline()
            self._terminal.write_line(progress_line(rows))

    def summarise(self, terminal: Any, exitstatus: int) -> None:
        """Close the record, write the reports, print the table and the path."""
        outcome = "interrupted" if self.interrupted else "failed" if exitstatus else "completed"
        paths = self.finish(outcome)
        if not self.session.rows:
            return
        terminal.write_sep("=", "kernelmark")
        if self.session.options.verify_only:
            for line in check_lines(self.session.rows):
                terminal.write_line(line)
        terminal.write_line(console_text(self.session.rows, width=terminal._tw.fullwidth))
        for path in paths:
            terminal.write_line(f"{path.suffix[1:] or path.name}: {path}")
        if self.write_error:
            terminal.write_line(f"error: {self.write_error}", red=True)

    def finish(self, outcome: str) -> list[Path]:
        """End the run once; gives the reports that were written."""
        if self._finished:
            return []
        self._finished = True
        try:
            self.session.close(outcome)
            return write_reports(self.session.folder) if self.session.folder else []
        except KernelmarkError as error:
            self.write_error = str(error)
            return []


def _options(config: pytest.Config) -> SessionOptions:
    given = {
        "sample_ms": config.getoption("--kernelmark-sample-ms"),
        "prepare_ms": config.getoption("--kernelmark-prepare-ms"),
        "blocks": config.getoption("--kernelmark-blocks"),
    }
    out, resumed = config.getoption("--kernelmark-out"), config.getoption("--kernelmark-resume")
    if out and resumed:
        raise UsageError(
            "--kernelmark-out starts a run, and --kernelmark-resume goes on with one; give one of them"
        )
    out = resumed or out
    return SessionOptions(
        device=str(config.getoption("--kernelmark-device")),
        timer=config.getoption("--kernelmark-timer"),
        verify_only=bool(config.getoption("kernelmark_verify")),
        require_baselines=bool(config.getoption("--require-baselines")),
        cache=Cache(config.getoption("--kernelmark-cache")),
        budget=Budget(**{name: value for name, value in given.items() if value is not None}),
        out=Path(out) if out else config.rootpath / "runs" / run_name(),
    )
