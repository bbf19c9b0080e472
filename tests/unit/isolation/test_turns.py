"""One worker has its turn and the others are held: real processes, really stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kernelmark.errors import UnavailableError
from kernelmark.isolation import Ended, ForkServer, Limits, Turns, Worker, importing_the_same
from tests.unit.isolation import targets
from tests.unit.isolation.conftest import is_gone, state_of

Begin = Callable[..., "Future[Ended[Any]]"]


@pytest.fixture
def workers() -> list[Worker[Any]]:
    return []


@pytest.fixture
def begin(server: ForkServer, workers: list[Worker[Any]]) -> Iterator[Begin]:
    turns = Turns()
    with ThreadPoolExecutor(4) as pool, ExitStack() as stack:

        def one(target: Any, request: Any, *, limit_s: float = 20) -> Future[Ended[Any]]:
            worker = stack.enter_context(Worker(target, Limits(limit_s), start=server, turns=turns))
            workers.append(worker)
            return pool.submit(worker.call, request)

        yield one


def wait_for(file: Path) -> None:
    until = time.monotonic() + 20
    while not file.exists():
        assert time.monotonic() < until, f"{file} did not come"
        time.sleep(0.005)


def pids_of(folder: Path) -> list[int]:
    wait_for(folder / "child")
    return [int(pid) for pid in (folder / "pids").read_text().split()]


def wait_until_gone(pids: list[int]) -> None:
    until = time.monotonic() + 10
    while not all(map(is_gone, pids)):
        assert time.monotonic() < until, [state_of(pid) for pid in pids]
        time.sleep(0.01)


def spans_of(folder: Path, *names: str) -> list[list[float]]:
    return sorted(json.loads((folder / name).read_text()) for name in names)


def test_nobody_else_works_during_a_turn_nor_what_they_started_and_all_go_on_after_it(
    begin: Begin, tmp_path: Path
) -> None:
    working, watching = begin(targets.work, [str(tmp_path), 1.5]), begin(targets.watch, str(tmp_path))
    assert watching.result().value() == [
        "the same turn",
        "the processes of another kernel were held while this was timed",
        "still",
        "went on",
    ]
    assert not working.result().message


def test_two_turns_never_overlap_and_one_that_is_alone_holds_nobody(begin: Begin, tmp_path: Path) -> None:
    both = [begin(targets.take_time, [str(tmp_path), name, 0.4]) for name in ("a", "b")]
    assert [each.result().message for each in both] == ["", ""]
    spans = spans_of(tmp_path, "a", "b")
    assert spans[0][1] <= spans[1][0]
    assert begin(targets.take_time, [str(tmp_path), "c", 0]).result().value() == ""


def test_time_held_or_spent_waiting_counts_against_no_limit(begin: Begin, tmp_path: Path) -> None:
    worker = begin(targets.work, [str(tmp_path), 0.5], limit_s=2.5)
    pids_of(tmp_path)
    first = begin(targets.take_time, [str(tmp_path), "first", 2], limit_s=3.5)
    second = begin(targets.take_time, [str(tmp_path), "second", 2], limit_s=3.5)
    ended = [each.result() for each in (worker, first, second)]
    assert [each.message for each in ended] == ["", "", ""]
    spans = spans_of(tmp_path, "first", "second")
    assert spans[1][1] - spans[0][0] > 4  # so the second waited for longer than was left of its limit
    assert ended[0].wall_s < 2.5


def test_a_turn_ends_with_the_process_that_has_it(begin: Begin, tmp_path: Path) -> None:
    working = begin(targets.work, [str(tmp_path), 0.5])
    pids_of(tmp_path)
    death = begin(targets.die_in_turn, str(tmp_path)).result().death
    assert death
    assert death.killed
    assert not begin(targets.take_time, [str(tmp_path), "next", 0]).result().message
    assert not working.result().message


def test_a_turn_ends_with_the_limit_of_the_process_that_has_it(begin: Begin, tmp_path: Path) -> None:
    working = begin(targets.work, [str(tmp_path), 0.5])
    pids_of(tmp_path)
    assert (
        begin(targets.hang_in_turn, str(tmp_path), limit_s=1).result().message == "it did not end within 1 s"
    )
    assert not working.result().message


def test_a_worker_of_a_worker_s_asks_upwards(begin: Begin, tmp_path: Path) -> None:
    working = begin(targets.work, [str(tmp_path), 1])
    pids_of(tmp_path)
    below = begin(targets.take_time_below, [str(tmp_path), "x", 0.1]).result()
    assert below.value() == "the processes of another kernel were held while this was timed"
    assert not working.result().message


def test_one_that_is_held_when_everything_is_closed_is_gone_with_what_it_started(
    begin: Begin, tmp_path: Path, workers: list[Worker[Any]]
) -> None:
    working = begin(targets.work, [str(tmp_path), 30], limit_s=60)
    pids = pids_of(tmp_path)
    hanging = begin(targets.hang_in_turn, str(tmp_path), limit_s=60)
    wait_for(tmp_path / "hangs")
    assert [state_of(pid) for pid in pids] == ["T", "T"]
    for worker in workers:
        worker.close()
    wait_until_gone(pids)
    for each in (working, hanging):
        with pytest.raises(UnavailableError):
            each.result()


DRIVER = """
import sys, threading
from pathlib import Path
from kernelmark.isolation import ForkServer, Limits, Turns, Worker
from tests.unit.isolation import targets
folder, turns = Path(sys.argv[1]), Turns()
with ForkServer() as server:
    def run(target, request):
        with Worker(target, Limits(60), start=server, turns=turns) as worker:
            worker.call(request)
    threading.Thread(target=run, args=(targets.work, [str(folder), 30]), daemon=True).start()
    while not (folder / "child").exists():
        pass
    run(targets.hang_in_turn, str(folder))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_one_that_is_held_when_the_driver_dies_is_gone_with_what_it_started(
    tmp_path: Path, number: signal.Signals
) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        env={**os.environ, **importing_the_same()},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(tmp_path / "hangs")
        pids = pids_of(tmp_path)
        assert [state_of(pid) for pid in pids] == ["T", "T"]
    finally:
        driver.send_signal(number)
        driver.wait(20)
    wait_until_gone(pids)
