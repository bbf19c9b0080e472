"""One call to its end: each death with the stage that was reached, and each limit."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from kernelmark.isolation import READY, TIMED, Limits
from tests.unit.isolation import targets
from tests.unit.isolation.conftest import Make, is_gone


@pytest.mark.spec("L12")
@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("segfault", -signal.SIGSEGV, "SIGSEGV: it used memory"),
        ("kill", -signal.SIGKILL, "SIGKILL: killed from outside"),
        ("_exit", 5, "ended with status 5"),
        ("garbage", None, "no message: b'no message'"),
        ("close", None, "its end was closed"),
    ],
)
def test_a_death_is_told_with_the_stage_and_what_was_handed_over(
    make: Make, how: str, code: int | None, words: str
) -> None:
    worker = make(targets.leave)
    ended = worker.call(how)
    assert ended.death
    assert ended.death.code == code
    assert words in ended.message
    assert (ended.stage, ended.told) == ("leaving", ({"before": how},))
    assert ended.death.killed == (how == "kill")
    assert worker.call("").answer is None  # the next one runs
    assert worker.call("").death is None


def test_a_worker_that_exits_or_answers_what_nothing_holds_is_a_failure(make: Make) -> None:
    assert make(targets.leave).call("exit").message == "it called sys.exit(4)"
    assert "lock cannot be handed over" in make(targets.leave).call("lock").message


@pytest.mark.spec("L12")
def test_one_that_hangs_is_ended_at_its_limit(make: Make) -> None:
    begin = time.monotonic()
    ended = make(targets.hang, Limits(2)).call(False)
    assert ended.death
    assert ended.death.timed_out
    assert ended.message == "it did not end within 2 s"
    assert ended.stage == "hanging"
    assert time.monotonic() - begin < 15


def test_a_start_has_a_limit_of_its_own_and_the_rest_counts_from_when_it_is_ready(fork: Make) -> None:
    not_ready = fork(targets.hang, Limits(60, start_s=1)).call(False)
    assert not_ready.message == "it did not start up within 1 s"
    ready = fork(targets.hang, Limits(1, start_s=60)).call(True)
    assert ready.message == "it did not end within 1 s"
    assert ready.stages == (READY, "hanging")
    assert 1 <= ready.wall_s < 5


def test_a_stage_s_own_limit_ends_with_it(fork: Make) -> None:
    assert fork(targets.slow_stage).call(10).value() == "through"
    ended = fork(targets.slow_stage).call(0.3)
    assert ended.death
    assert ended.death.timed_out
    assert ended.stage == "short"
    assert ended.wall_s < 2


def test_one_that_is_not_heard_of_is_ended_and_a_heartbeat_keeps_it(fork: Make) -> None:
    ended = fork(targets.beat, Limits(60, silence_s=0.8)).call(8)
    assert ended.message == "nothing was heard of it for 0.8 s"
    assert 1.6 < ended.wall_s < 20


def test_one_that_floods_its_output_is_ended_and_its_last_lines_are_kept(make: Make) -> None:
    ended = make(targets.flood, Limits(60, output_bytes=1 << 20)).call()
    assert ended.death
    assert ended.death.code is None
    assert "more than 1048576 bytes" in ended.message
    assert 0 < len(ended.output) <= 8192


def test_a_reply_is_made_when_it_is_asked_for_and_not_before(fork: Make) -> None:
    seen: list[Any] = []

    def draw() -> list[int]:
        seen.append("drawn")
        return [1, 2]

    ended = fork(targets.ask).call(on_stage=seen.append, replies={TIMED: draw})
    assert ended.value() == [1, 2]
    assert seen == [TIMED, "drawn"]


@pytest.mark.parametrize("how", ["", "kill", "hang"])
def test_what_was_started_is_gone_wherever_it_went(make: Make, how: str) -> None:
    ended = make(targets.scatter, Limits(3 if how == "hang" else 30)).call(how)
    assert bool(ended.death) == bool(how)
    (pids,) = ended.told
    assert len(pids) == 4
    if how == "kill":
        # the one without a mark has lost its parent before anybody looked, and its group is another one
        pids.pop(1)
    assert [pid for pid in pids if not is_gone(pid)] == []
