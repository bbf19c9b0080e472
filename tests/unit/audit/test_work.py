"""What the other process does, here: who goes on reading after a refusal, and who does not."""

from __future__ import annotations

import json

import pytest
import torch

from kernelmark.audit import work as subject
from kernelmark.audit.instruments import Instrument, Place
from kernelmark.audit.result import Failure, Reading, Said
from kernelmark.device import CpuDevice, FakeDevice
from kernelmark.errors import EmptyIterationError
from kernelmark.isolation.channel import plain, typed
from kernelmark.records import Cache
from kernelmark.timing import Call

CALLS = {"a": Call(lambda: None), "b": Call(lambda: None)}


def own(timer: str) -> Instrument:
    return Instrument(timer, "a timer", Cache.WARM, Place.SHARED, timer=timer)


def told(found: list) -> list[tuple[str, str | None]]:
    return [(each.instrument, each.call) for each in found]


def test_the_first_reading_of_a_call_follows_another_call_and_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[Call] = []

    def remember(device: object, call: Call, instrument: Instrument) -> tuple[float, int]:
        read.append(call)
        return float(len(read)), 5

    monkeypatch.setitem(subject._READ_BY, "timer", remember)
    found = list(subject._all_runs(FakeDevice(), CALLS, [own("host")], 2))
    assert read == [*[CALLS["a"]] * 3, *[CALLS["b"]] * 3]
    assert [each.ns for each in found if isinstance(each, Reading)] == [2.0, 3.0, 5.0, 6.0]


def test_all_runs_of_a_call_follow_each_other_and_instruments_take_turns_in_them() -> None:
    wanted = [own("host"), Instrument("again", "a timer", Cache.WARM, Place.SHARED, timer="host")]
    found = list(subject._all_runs(CpuDevice(), CALLS, wanted, 2))
    assert [(each.call, each.run, each.instrument) for each in found if isinstance(each, Reading)] == [
        (call, run, instrument) for call in ("a", "b") for run in (0, 1) for instrument in ("host", "again")
    ]


def test_an_instrument_that_is_not_here_says_so_once_and_the_others_go_on() -> None:
    found = list(subject._all_runs(CpuDevice(), CALLS, [own("cupti"), own("host")], 2))
    failures = [each for each in found if isinstance(each, Failure)]
    assert [(each.instrument, each.call, each.unavailable) for each in failures] == [("cupti", None, True)]
    assert "serves NVIDIA devices" in failures[0].reason
    assert told(found).count(("host", "a")) == 2


def test_a_call_that_an_instrument_refuses_is_not_asked_of_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_b(device: object, call: Call, instrument: Instrument) -> tuple[float, int]:
        if call is CALLS["b"]:
            raise EmptyIterationError("no work")
        return 1.0, 5

    monkeypatch.setitem(subject._READ_BY, "timer", refuse_b)
    found = list(subject._all_runs(FakeDevice(), CALLS, [own("host")], 3))
    assert told(found) == [("host", "a"), ("host", "a"), ("host", "a"), ("host", "b")]
    assert found[3] == Failure("host", "EmptyIterationError: no work", "b")


def test_the_calls_own_error_is_nobodys_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(subject._all_runs(FakeDevice(), {"a": Call(fail)}, [own("host")], 1))


@pytest.mark.skipif(torch.cuda.is_available(), reason="Triton has a driver here")
def test_do_bench_without_a_gpu_is_unavailable() -> None:
    instrument = Instrument("do_bench", "", Cache.COLD, Place.SHARED)
    said = subject._one(CpuDevice(), CALLS["a"], instrument, run=0, name="a")
    assert isinstance(said, Failure)
    assert said.unavailable
    assert "Triton has no driver for cpu" in said.reason or "is not installed" in said.reason


def test_the_cost_of_a_reading_is_the_host_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 10.25])
    monkeypatch.setattr(subject, "_clock", lambda: next(times))
    monkeypatch.setitem(subject._READ_BY, "timer", lambda *_: (1.0, 5))
    said = subject._one(FakeDevice(), CALLS["a"], own("host"), run=0, name="a")
    assert said == Reading("host", "a", 0, 1.0, 5, 0.25)


def test_what_is_said_arrives_as_it_was_told() -> None:
    said = [Reading("host", "a", 0, 1.5, 10, 0.2), Failure("ncu", "no\nluck", unavailable=True)]
    assert [typed(Said, json.loads(json.dumps(plain(each)))) for each in said] == said
