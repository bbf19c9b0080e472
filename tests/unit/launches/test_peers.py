"""Whether a process is there, asked of real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from kernelmark.launches.peers import Peers, this_process


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
