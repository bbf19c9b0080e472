"""Whether a process is there, asked of real ones; and a watch that parts devices: when it looks, and when it parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from kernelmark.launches import watching
from kernelmark.launches.watching import DeviceWatch, Loss, Peers, this_process


def described(child: subprocess.Popen) -> str:
    return json.dumps(json.loads(this_process()) | {"pid": child.pid})


@pytest.fixture
def child():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def wait_until_ended(peers: Peers) -> list[int]:
    deadline = time.monotonic() + 20
    while not peers.ended() and time.monotonic() < deadline:
        time.sleep(0.01)
    return peers.ended()


@pytest.mark.spec("X15")
def test_a_process_that_was_killed_has_ended_before_anybody_waits_for_it(child: subprocess.Popen) -> None:
    peers = Peers({3: described(child), 5: this_process()})
    assert peers.ended() == []
    child.kill()
    assert wait_until_ended(peers) == [3]
    os.kill(child.pid, 0)  # its number is still taken, and would have said that it lives


def test_processes_of_other_machines_are_not_looked_for_here(child: subprocess.Popen) -> None:
    elsewhere = json.dumps({"pid": child.pid, "where": ["another boot", "pid:[1]"]})
    peers = Peers({1: elsewhere})
    child.kill()
    child.wait()
    assert peers.ended() == []


def test_without_handles_of_processes_nobody_is_watched(
    child: subprocess.Popen, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(pid: int) -> int:
        raise OSError("not implemented")

    monkeypatch.setattr(os, "pidfd_open", refused)
    peers = Peers({1: described(child)})
    child.kill()
    child.wait()
    assert peers.ended() == []


def test_handles_are_given_back(child: subprocess.Popen) -> None:
    before = len(os.listdir("/proc/self/fd"))
    peers = Peers({1: described(child)})
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del peers
    assert len(os.listdir("/proc/self/fd")) == before


# --- the watch ---------------------------------------------------------------------------------------

LIMIT_S = 20


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_POLL_S", 0.005)
    monkeypatch.setattr(watching, "_GRACE_S", 0.02)


class Host:
    """Waits for its device until the watch parts it."""

    def __init__(self, look: Callable[[], Loss | None], limit_s: float = 1e9) -> None:
        self.parted = threading.Event()
        self.watch = DeviceWatch(look, self.parted.set, limit_s=limit_s)

    def waits(self) -> Loss | None:
        self.watch.arm()
        assert self.parted.wait(LIMIT_S)
        return self.watch.disarm()


@pytest.mark.parametrize("loss", [Loss.ENDED, Loss.LEFT])
def test_a_device_whose_peer_is_gone_is_parted_and_the_reason_kept(loss: Loss) -> None:
    host = Host(lambda: loss)
    assert host.waits() is loss
    assert host.watch.loss is loss


def test_a_device_that_waits_longer_than_the_limit_is_parted_though_nobody_is_known_to_be_gone() -> None:
    began = time.monotonic()
    assert Host(lambda: None, limit_s=0.2).waits() is Loss.SILENT
    assert time.monotonic() - began > 0.2


def test_a_limit_shorter_than_the_grace_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_GRACE_S", 3600)
    assert Host(lambda: None, limit_s=0.01).waits() is Loss.SILENT


def test_rounds_that_go_on_are_left_alone_and_nobody_is_asked_for() -> None:
    asked = []
    host = Host(lambda: asked.append(1) or Loss.ENDED)
    for _ in range(100):
        host.watch.arm()
        time.sleep(0.001)
        assert host.watch.disarm() is None
    assert not host.parted.is_set()
    assert not asked


def test_nothing_is_parted_between_rounds() -> None:
    host = Host(lambda: Loss.ENDED, limit_s=0.001)
    host.watch.arm()
    assert host.watch.disarm() is None
    assert not host.parted.wait(0.1)


def test_a_watch_that_rested_watches_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_IDLE_POLLS", 2)
    host = Host(lambda: Loss.ENDED)
    host.watch.arm()
    host.watch.disarm()
    deadline = time.monotonic() + LIMIT_S
    while host.watch._thread is not None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert host.watch._thread is None
    assert host.waits() is Loss.ENDED


def test_parting_that_fails_is_told() -> None:
    done = threading.Event()

    def part() -> None:
        done.set()
        raise RuntimeError("no such communicator")

    watch = DeviceWatch(lambda: Loss.ENDED, part, limit_s=10)
    watch.arm()
    assert done.wait(LIMIT_S)
    thread = watch._thread
    if thread is not None:
        thread.join(LIMIT_S)
    assert watch.disarm() is Loss.ENDED
    assert watch.trouble == "RuntimeError: no such communicator"
