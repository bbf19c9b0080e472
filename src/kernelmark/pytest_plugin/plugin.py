"""What takes part in one pytest run: makes its session current around each test, and shows and ends its run."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from kernelmark.harness.ambient import use_session

if TYPE_CHECKING:
    from kernelmark.harness.session import Session
    from kernelmark.pytest_plugin.run import BenchmarkRun

__all__ = ["KernelmarkPlugin"]

_ROWS = "kernelmark"
"""The attribute of a report that carries a test's rows from a worker of pytest-xdist to the process that records."""


class KernelmarkPlugin:
    """The hooks of one pytest run; ``config`` is that run's."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._run: BenchmarkRun | None = None
        self._before = 0

    def pytest_report_header(self) -> list[str]:
        """Say which settings are not the usual ones."""
        asked = []
        if self.config.getoption("kernelmark_verify"):
            asked.append("checks only, nothing is timed")
        if (device := self.config.getoption("--kernelmark-device")) != "auto":
            asked.append(f"device {device}")
        if (cache := self.config.getoption("--kernelmark-cache")) != "cold":
            asked.append(f"{cache} caches")
        if self.config.getoption("--require-baselines"):
            asked.append("every baseline is required")
        return [f"kernelmark: {', '.join(asked)}"] if asked else []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the cases of other shards out, one after the other to each, so that all have as many."""
        if (asked := self.config.getoption("--kernelmark-shard")) is None:
            return
        part, _, parts = asked.partition("/")
        if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
            raise pytest.UsageError(
                f"--kernelmark-shard {asked}: give a part and how many there are, such as 2/3"
            )
        cases = [item for item in items if _case_of(item) is not None]
        others = [item for number, item in enumerate(cases) if number % int(parts) != int(part) - 1]
        left_out = set(others)
        items[:] = [item for item in items if item not in left_out]
        self.config.hook.pytest_deselected(items=others)

    def pytest_sessionstart(self) -> None:
        """Refuse what the workers of pytest-xdist could only stumble over one by one."""
        parallel = self.config.getoption("numprocesses", None) and not self._is_worker
        if parallel and (resumed := self.config.getoption("--kernelmark-resume")):
            raise pytest.UsageError(
                f"--kernelmark-resume={resumed} under pytest-xdist: its workers do not know what the run has, and"
                " would check all of it again; leave out -n"
            )
        if parallel and self.config.getoption("--kernelmark-out"):
            self._needed().require_usable()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Refuse what no case could be run with, once, before the first one."""
        if self.config.option.collectonly or self._is_worker or not any(map(_case_of, session.items)):
            return
        self._needed().require_usable()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Make the run's session current around a test, whether or not the test compares anything."""
        with use_session(self._session):
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Refuse a case that cannot be run as asked, where pytest shows why."""
        if _case_of(item) is not None:
            try:
                self._needed()
            except pytest.UsageError as error:
                # not raised as it is: a worker of pytest-xdist would end without a word
                pytest.fail(str(error), pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Attach a test's rows to its report, also when it fails."""
        self._before = len(self._rows)
        try:
            return (yield)
        finally:
            if self._run is not None:
                self._run.attach(item, self._rows[self._before :])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Let a worker's rows travel with the report of their test."""
        report = yield
        if self._is_worker and self._run is not None and report.when == "call":
            setattr(report, _ROWS, self._run.packed(self._rows[self._before :]))
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Release a case's data when its test ends, also when it failed."""
        try:
            return (yield)
        finally:
            case = _case_of(item)
            if case is not None:
                case.release()
            if self._run is not None and (case is not None or len(self._rows) > self._before):
                self._run.released()

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Leave out the dot of a case that passed: it has a line of its own."""
        if report.when == "call" and report.passed and self._run is not None and self._run.unprinted():
            return "passed", "", "PASSED"
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record what a worker measured, and write the progress line of a test."""
        if sent := ([] if self._is_worker else getattr(report, _ROWS, [])):
            self._needed().record(sent)
        if report.when == "call" and self._run is not None:
            self._run.progress()

    def pytest_keyboard_interrupt(self) -> None:
        """Remember that the run was cut short."""
        if self._run is not None:
            self._run.interrupted = True

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        """End the run, and show its table and where it is kept."""
        if self._run is not None:
            self._run.summarise(terminalreporter, exitstatus)

    def end(self) -> None:
        """End the run where nothing else did."""
        if self._run is not None:
            self._run.finish("failed")

    @property
    def _is_worker(self) -> bool:
        return hasattr(self.config, "workerinput")

    @property
    def _rows(self) -> list[Any]:
        return self._run.session.rows if self._run is not None else []

    def _session(self) -> Session:
        return self._needed().session

    def _needed(self) -> BenchmarkRun:
        """Give the run of this pytest, made when it is first needed.

        Raises:
            pytest.UsageError: it cannot be made as the command line asks.
        """
        if self._run is None:
            from kernelmark.pytest_plugin.run import BenchmarkRun

            self._run = BenchmarkRun.of(self.config, is_worker=self._is_worker)
        return self._run


def _case_of(item: pytest.Item) -> Any:
    """Give the case that a test is parametrised with, or ``None``."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return None
    for value in callspec.params.values():
        # by module and name: a run without cases must not import the engine
        if type(value).__name__ == "Case" and type(value).__module__ == "kernelmark.harness.case":
            return value
    return None
