"""The script that asks kernelmark how honest it is counts what it says it counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kernelmark.device import FakeDevice
from kernelmark.timing import Timer
from kernelmark.timing.timers.host import HostTimer
from scripts import honesty
from scripts.honesty import Comparison, Finding

ONE, ABOVE, BELOW = (0.99, 1.01), (1.005, 1.03), (0.95, 0.99)


def _finding(factor: float, *intervals: tuple[float, float], empty_ns: float | None = 60.0) -> Finding:
    made = tuple(Comparison((low + high) / 2, low, high, 0.1, empty_ns) for low, high in intervals)
    return Finding("a call", factor, made)


def test_a_call_with_itself_counts_the_intervals_that_leave_out_one_on_either_side() -> None:
    found = _finding(1.0, ONE, ABOVE, BELOW)
    assert (found.apart, found.true) == (2, 1)


def test_a_slowed_call_counts_only_the_intervals_that_call_it_slower() -> None:
    found = _finding(1.02, ONE, ABOVE, BELOW)
    assert (found.apart, found.true) == (1, 1)


@pytest.mark.parametrize(
    ("factor", "apart", "kept"),
    [
        (1.0, 16, True),
        (1.0, 17, False),
        (1.02, 150, True),
        (1.02, 149, False),
        (1.05, 190, True),
        (1.05, 189, False),
    ],
)
def test_the_limits_are_those_for_two_hundred_comparisons(factor: float, apart: int, kept: bool) -> None:
    found = _finding(factor, *[ABOVE] * apart, *[ONE] * (200 - apart))
    assert found.limit()[1] is kept


def test_the_limits_scale_with_the_number_of_comparisons() -> None:
    assert _finding(1.0, *[ONE] * 25).limit() == ("at most 2", True)
    assert _finding(1.05, *[ONE] * 20).limit() == ("at least 19", False)
    assert _finding(1.01, ONE).limit() == ("none", True)


def test_an_empty_call_of_two_microseconds_is_too_much_for_the_host_timer_only() -> None:
    slow = _finding(1.0, ONE, empty_ns=2_000.0)
    assert not honesty.empty_call_kept(slow, "host")
    assert honesty.empty_call_kept(slow, "device_events")
    assert honesty.empty_call_kept(_finding(1.0, ONE), "host")


def test_the_slowed_call_does_the_same_work_on_more_slices() -> None:
    plain, slowed = honesty.sliced_softmax(torch.device("cpu"), 1.05)
    (fewer,), (more,) = plain.args, slowed.args
    assert (len(fewer), len(more)) == (100, 105)
    assert plain.run is slowed.run
    assert {tuple(x.shape) for x, _ in more} == {(16, 1024)}
    assert len({out.data_ptr() for _, out in more}) == 105
    slowed.run(*slowed.args)
    assert all(torch.equal(out, torch.softmax(x, -1)) for x, out in more)


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """Let every call take as long as its slices say, on a clock that does not waver."""
    device = FakeDevice()

    def fake_open_timer(_name: str | None, _device: FakeDevice) -> Timer:
        return HostTimer(device.clock)

    def run(slices: list) -> None:
        device.clock.advance(10_000 * len(slices))

    def fake_sliced(where: torch.device, factor: float):
        plain, slowed = sliced(where, factor)
        return [honesty.Call(run, call.args) for call in (plain, slowed)]

    sliced = honesty.sliced_softmax
    monkeypatch.setattr(honesty, "open_device", lambda _name: device)
    monkeypatch.setattr(honesty, "open_timer", fake_open_timer)
    monkeypatch.setattr(honesty, "sliced_softmax", fake_sliced)
    monkeypatch.setattr(honesty, "CALLS", {"add": lambda _where: honesty.Call(run, ([0],))})
    return device


@pytest.mark.usefixtures("faked")
def test_on_a_steady_machine_every_factor_is_found_exactly(tmp_path: Path, capsys) -> None:
    stored = tmp_path / "honesty.json"
    assert honesty.main(["--comparisons", "3", "--slowdown", "1.02", "1.05", "--json", str(stored)]) == 0
    out = capsys.readouterr().out
    assert "3 of 3 find a factor of 1.02 (limit: at least 3)" in out
    assert "median ratio 1.0500, half-width 0.00 %" in out
    assert out.endswith("all limits kept\n")
    findings = json.loads(stored.read_text())["findings"]
    assert [each["factor"] for each in findings] == [1.02, 1.05]
    assert all(each["kept"] and len(each["comparisons"]) == 3 for each in findings)


@pytest.mark.usefixtures("faked")
def test_a_missed_limit_ends_with_exit_code_one(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(honesty, "EMPTY_BELOW_NS", 0)
    assert honesty.main(["--comparisons", "1", "--calls", "add", "--cache", "warm"]) == 1
    assert capsys.readouterr().out.endswith("a limit was missed\n")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--blocks", "1"], "one block gives no interval"),
        (["--comparisons", "0"], "at least 1"),
        (["--slowdown", "1.005"], "in steps of 0.01"),
        (["--slowdown", "0.9"], "a factor above 1"),
    ],
)
def test_what_cannot_be_asked_is_refused(wrong: list[str], message: str, capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        honesty.main(wrong)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
