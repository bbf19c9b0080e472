"""A call begins when no other thread of the process computes, or once the limit is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from kernelmark.device.settling import LIMIT_S, Settler

needs_proc = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="reads /proc/self/task")


def machine(root: Path, **states: str) -> Path:
    """Make a table of threads: their numbers, and what each does."""
    for task, state in states.items():
        folder = root / "proc/self/task" / task.removeprefix("t")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stat").write_text(f"{folder.name} (a) R (b) {state} 1 2 3")
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
    settle.forget()
    settle()
    assert clock.looks > paid


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
