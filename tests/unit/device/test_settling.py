"""A call begins when no other thread of the process computes, or once the limit is over."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from kernelmark.device.settling import LIMIT_S, Settler

needs_proc = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="reads /proc/self/task")


def machine(root: Path, **threads: str) -> Path:
    """Make a table of threads: their numbers, and for each its state, processor and nanoseconds computed."""
    for task, told in threads.items():
        state, processor, ran_ns = (*told.split(), "0", "0")[:3]
        folder = root / "proc/self/task" / task.removeprefix("t")
        folder.mkdir(parents=True, exist_ok=True)
        fields = [state, *["0"] * 35, processor, "0", "0"]
        (folder / "stat").write_text(f"{folder.name} (a) R (b) {' '.join(fields)}\n")
        (folder / "schedstat").write_text(f"{ran_ns} 5 6\n")
    return root


class Clock:
    """Counts a millisecond for each look, and does something at a given one."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.looks / 1e3


def test_sleeping_threads_are_not_waited_for(tmp_path: Path) -> None:
    clock = Clock()
    settle = Settler(machine(tmp_path, t1="S", t2="D", t3="T"), clock=clock)
    settle()
    assert clock.looks == 0
    assert settle.computing() == 0


def test_a_thread_that_never_rests_costs_the_limit_once_until_it_is_forgotten(tmp_path: Path) -> None:
    clock = Clock()
    settle = Settler(machine(tmp_path, t1="S", t2="R"), clock=clock)
    settle()
    paid = clock.looks
    assert paid == pytest.approx(LIMIT_S * 1e3 + 1, abs=1)
    settle()
    assert clock.looks == paid
    assert settle.computing() == 1  # it is still counted
    settle.expect()
    settle()
    assert clock.looks > paid


@pytest.mark.parametrize(
    ("threads", "familiar", "waits"),
    [
        ({"t1": "S", "t2": "R"}, {"2"}, False),
        ({"t1": "R", "t2": "R"}, {"1", "2", "9"}, False),
        ({"t1": "R", "t2": "R"}, {"2"}, True),
        ({"t1": "S", "t2": "R"}, set(), True),
        ({"t1": "S", "t2": "S"}, {"2"}, False),
    ],
)
def test_a_calls_own_workers_may_go_on_and_no_others(
    tmp_path: Path, threads: dict[str, str], familiar: set[str], waits: bool
) -> None:
    clock = Clock()
    settle = Settler(machine(tmp_path, **threads), clock=clock)
    assert settle.working() == {task[1:] for task, state in threads.items() if state == "R"}
    settle.expect(familiar)
    assert settle.computing() == len(settle.working() - familiar)
    settle()
    assert (clock.looks > 0) == waits


def test_own_workers_may_go_on_before_every_call_until_others_are_expected(tmp_path: Path) -> None:
    clock = Clock()
    settle = Settler(machine(tmp_path, t1="S", t2="R"), clock=clock)
    settle.expect({"2"})
    for _ in range(3):
        settle()
    assert clock.looks == 0
    settle.expect({"1"})
    settle()
    assert clock.looks > 0


def test_a_stranger_is_waited_for_and_own_workers_are_not(tmp_path: Path) -> None:
    machine(tmp_path, t1="R", t2="R")

    class Stops(Clock):
        def __call__(self) -> float:
            if self.looks == 3:
                machine(tmp_path, t1="S")
            return super().__call__()

    clock = Stops()
    settle = Settler(tmp_path, clock=clock)
    settle.expect({"2"})
    settle()
    assert clock.looks == 4
    assert settle.working() == {"2"}


def test_a_thread_that_comes_to_rest_ends_the_wait(tmp_path: Path) -> None:
    machine(tmp_path, t2="R")

    class Stops(Clock):
        def __call__(self) -> float:
            if self.looks == 3:
                machine(tmp_path, t2="S")
            return super().__call__()

    clock = Stops()
    Settler(tmp_path, clock=clock)()
    assert clock.looks == 4


def test_where_the_system_does_not_tell_nothing_is_waited_for(tmp_path: Path) -> None:
    settle = Settler(tmp_path)
    settle()
    assert not settle.known
    assert settle.computing() is None


class Moves:
    """What the calling thread is bound to, one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, allowed: set[int]) -> None:
        self.made: list[set[int]] = []
        monkeypatch.setattr(os, "sched_getaffinity", lambda thread: allowed, raising=False)
        monkeypatch.setattr(os, "sched_setaffinity", self.move, raising=False)

    def move(self, thread: int, processors: set[int]) -> None:
        assert thread == 0
        self.made.append(processors)


def own(told: str) -> dict[str, str]:
    return {f"t{threading.get_native_id()}": told}


def test_the_caller_leaves_the_processor_of_a_thread_that_has_just_worked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = Moves(monkeypatch, {0, 1, 2})
    settle = Settler(machine(tmp_path, **own("R 1"), t2="S 1 100", t3="S 0 100"))
    settle()
    assert moves.made == [{2}, {0, 1, 2}]  # the one that nobody worked on, and free again


def test_threads_that_have_not_worked_since_the_last_time_are_nobodys_concern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = Moves(monkeypatch, {0, 1})
    settle = Settler(machine(tmp_path, **own("R 0"), t2="S 1 100"))
    settle()
    machine(tmp_path, **own("R 1"))
    settle()
    assert moves.made == []
    machine(tmp_path, t2="S 1 101")
    settle()
    assert moves.made == [{0}, {0, 1}]


@pytest.mark.parametrize(
    ("allowed", "ignored"),
    [({0, 1}, []), ({1}, []), ({0, 1, 2}, [2])],
    ids=["no processor is free", "there is but one", "the thread is ignored"],
)
def test_the_caller_stays_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: set[int], ignored: list[int]
) -> None:
    moves = Moves(monkeypatch, allowed)
    others = {"t3": "S 0 7"} if len(allowed) == 2 else {}
    settle = Settler(machine(tmp_path, **own("R 1"), t2="S 1 100", **others))
    for thread in ignored:
        settle.ignore(thread)
    settle()
    assert moves.made == []


@needs_proc
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor has no other to go to")
def test_a_real_thread_is_stood_clear_of_and_the_caller_stays_free(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, settle, bind = os.sched_getaffinity(0), Settler(), os.sched_setaffinity
    made: list[set[int]] = []
    settle()  # what ran before this test is of no concern
    busy = threading.Barrier(2)

    def work() -> None:
        os.sched_setaffinity(0, {max(allowed)})
        sum(range(10_000))
        busy.wait()
        busy.wait()  # asleep, and last seen on that processor

    thread = threading.Thread(target=work)
    thread.start()
    try:
        busy.wait()
        bind(0, {max(allowed)})
        monkeypatch.setattr(
            os, "sched_getaffinity", lambda who: allowed
        )  # bound, so that nobody moves it before
        monkeypatch.setattr(
            os, "sched_setaffinity", lambda who, where: (made.append(where), bind(who, where))
        )
        settle()
        assert made == [{min(allowed)}, allowed]
        monkeypatch.undo()
        assert os.sched_getaffinity(0) == allowed
    finally:
        busy.wait()
        thread.join()


@contextmanager
def spinning() -> Iterator[None]:
    """Compute in another thread, outside the interpreter's lock."""
    stop = threading.Event()

    def spin() -> None:
        one = torch.ones(1 << 18)
        while not stop.is_set():
            one.sum()

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@needs_proc
def test_a_real_thread_that_computes_is_seen() -> None:
    settle = Settler()
    with spinning():
        seen = [settle.computing() for _ in range(200) if not time.sleep(0.001)]
    assert any(seen)
    settle()
    assert settle.computing() == 0


@needs_proc
@pytest.mark.skipif(torch.get_num_threads() < 2, reason="torch has no thread that could spin")
def test_torchs_own_workers_have_settled() -> None:
    settle, x = Settler(), torch.ones(1 << 22)
    for _ in range(5):
        x.sum()
        settle()
        assert settle.computing() == 0
