"""Workers for these tests, by a fork server and afresh; real processes both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kernelmark.isolation import ForkServer, Limits, Start, Worker, importing_the_same

Make = Callable[..., Worker[Any]]


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    with ForkServer(("tests.unit.isolation.targets",), environment=importing_the_same()) as opened:
        yield opened


@pytest.fixture(params=list(Start))
def start(request: pytest.FixtureRequest, server: ForkServer) -> Start | ForkServer:
    return server if request.param is Start.FORK else Start.SPAWN


@pytest.fixture
def make(start: Start | ForkServer) -> Iterator[Make]:
    """Make workers of either kind, which are closed at the test's end."""
    with ExitStack() as stack:

        def one(target: Any, limits: Limits | None = None, **more: Any) -> Worker[Any]:
            given = {"start": start, "environment": importing_the_same(), **more}
            return stack.enter_context(Worker(target, limits or Limits(20), **given))

        yield one


@pytest.fixture
def fork(server: ForkServer) -> Iterator[Make]:
    """Make workers of the shared fork server's."""
    with ExitStack() as stack:

        def one(target: Any, limits: Limits | None = None, **more: Any) -> Worker[Any]:
            return stack.enter_context(Worker(target, limits or Limits(20), start=server, **more))

        yield one


def state_of(pid: int) -> str:
    """Say what a process is doing, as the system writes it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"


def is_gone(pid: int) -> bool:
    return state_of(pid) in ("gone", "Z", "X")
