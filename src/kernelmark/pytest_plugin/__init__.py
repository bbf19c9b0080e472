"""The pytest plugin: options, one session per run, a line per case, the table at the end.

It is loaded in every pytest run of an environment that has kernelmark, so it imports nothing heavy until
a test asks for a case, and stays silent in a run that records nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kernelmark.pytest_plugin.run import BenchmarkRun

__all__: list[str] = []

_OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        ("--kernelmark-verify", "--tileops-verify"),
        {
            "action": "store_true",
            "dest": "kernelmark_verify",
            "help": "check every implementation, time nothing",
        },
    ),
    (
        ("--kernelmark-device",),
        {"default": "auto", "metavar": "NAME", "help": "auto (the best there is), cpu, cuda, cuda:1, ..."},
    ),
    (("--kernelmark-timer",), {"metavar": "NAME", "help": "an instrument other than the device's own"}),
    (
        ("--kernelmark-cache",),
        {"default": "cold", "choices": ("cold", "warm"), "help": "the caches when a timed call starts"},
    ),
    (
        ("--kernelmark-sample-ms",),
        {"type": float, "metavar": "MS", "help": "sampling budget of each implementation (default 100)"},
    ),
    (
        ("--kernelmark-prepare-ms",),
        {
            "type": float,
            "metavar": "MS",
            "help": "what the flushes around an implementation's samples may take (default 500)",
        },
    ),
    (
        ("--kernelmark-blocks",),
        {"type": int, "metavar": "N", "help": "blocks of A B C C B A (default 10; 1 gives no interval)"},
    ),
    (
        ("--kernelmark-out",),
        {"metavar": "DIR", "help": "keep the run here (default: runs/<time>, in the root folder)"},
    ),
    (
        ("--require-baselines",),
        {"action": "store_true", "help": "fail where a baseline is unavailable"},
    ),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the group ``kernelmark``."""
    group = parser.getgroup("kernelmark", "kernel benchmarks")
    for names, settings in _OPTIONS:
        group.addoption(*names, **settings)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say which settings are not the usual ones."""
    asked = []
    if config.getoption("kernelmark_verify"):
        asked.append("checks only, nothing is timed")
    if (device := config.getoption("--kernelmark-device")) != "auto":
        asked.append(f"device {device}")
    if (cache := config.getoption("--kernelmark-cache")) != "cold":
        asked.append(f"{cache} caches")
    if config.getoption("--require-baselines"):
        asked.append("every baseline is required")
    return [f"kernelmark: {', '.join(asked)}"] if asked else []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Make the run's session current around a test that has a case."""
    run = _run(item.config) if _case_of(item) is not None else None
    if run is None:
        return (yield)
    with run.session_in_use():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a case that cannot be run as asked, where pytest shows why."""
    if _case_of(item) is not None and id(item.config) in _REFUSALS:
        # not raised as it is: a worker of pytest-xdist would end without a word
        pytest.fail(str(_REFUSALS[id(item.config)]), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Attach a test's rows to its report, also when it fails."""
    run = _run(item.config) if _case_of(item) is not None else None
    if run is None:
        return (yield)
    before = len(run.session.rows)
    try:
        return (yield)
    finally:
        run.attach(item, run.session.rows[before:])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Release a case's data when its test ends, also when it failed."""
    try:
        return (yield)
    finally:
        case = _case_of(item)
        if case is not None:
            case.release()
            if (run := _run(item.config)) is not None:
                run.released()


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: pytest.TestReport, config: pytest.Config) -> tuple[str, str, str] | None:
    """Leave out the dot of a case that passed: it has a line of its own."""
    run = _RUNS.get(id(config))
    if run is not None and report.when == "call" and report.passed and run.unprinted():
        return "passed", "", "PASSED"
    return None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write the progress line of a case."""
    if report.when == "call":
        for run in _RUNS.values():
            run.progress()


def pytest_keyboard_interrupt(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Remember that the runs in this process were cut short."""
    for run in _RUNS.values():
        run.interrupted = True


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """End the run, and show its table and where it is kept."""
    run = _RUNS.get(id(config))
    if run is not None:
        run.summarise(terminalreporter, exitstatus)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the run where nothing else did."""
    _REFUSALS.pop(id(config), None)
    run = _RUNS.pop(id(config), None)
    if run is not None:
        run.finish("failed")


_RUNS: dict[int, BenchmarkRun] = {}
_REFUSALS: dict[int, pytest.UsageError] = {}


def _run(config: pytest.Config) -> BenchmarkRun | None:
    """Give the run of this pytest, made for the first case; ``None`` where what is asked for is refused."""
    key = id(config)
    if key not in _RUNS and key not in _REFUSALS:
        from kernelmark.pytest_plugin.run import BenchmarkRun

        try:
            _RUNS[key] = BenchmarkRun.of(config)
        except pytest.UsageError as error:
            _REFUSALS[key] = error
    return _RUNS.get(key)


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
