"""Which instrument a name means, and which one is taken where none is named."""

from __future__ import annotations

import pytest

from kernelmark.device import FakeDevice
from kernelmark.errors import UnavailableError, UsageError
from kernelmark.launches import timers
from kernelmark.launches.timers import LaunchTimer, choose_timer, find_timer, open_chosen

NVIDIA = FakeDevice(kind="cuda", torch_name="cuda:0", default_timer="cupti")
AMD = FakeDevice(kind="cuda", torch_name="cuda:0", default_timer="device_events")
OTHER = FakeDevice(kind="xpu", torch_name="xpu:0", default_timer="device_events")
CPU = FakeDevice(kind="cpu")


@pytest.mark.spec("X2")
@pytest.mark.parametrize(
    ("device", "here", "together"),
    [
        (NVIDIA, "proton", "kineto"),
        (AMD, "event", "host"),
        (OTHER, "event", "host"),
        (CPU, "host", "host"),
        (FakeDevice(), "host", "host"),
    ],
    ids=["nvidia", "amd", "other", "cpu", "fake"],
)
def test_the_default_depends_on_the_device_and_on_whether_there_are_other_ranks(
    device: FakeDevice, here: str, together: str
) -> None:
    assert choose_timer(None, device, distributed=False).timer.name == here
    assert choose_timer(None, device, distributed=True).timer.name == together


@pytest.mark.spec("X2")
def test_the_hosts_clock_is_never_taken_without_saying_so() -> None:
    assert "wall time, not kernel time" in choose_timer(None, CPU, distributed=False).reason
    assert choose_timer(find_timer("host"), CPU, distributed=False).reason == "asked for"


@pytest.mark.spec("X2")
@pytest.mark.parametrize("name", [each.name for each in timers.LAUNCH_TIMERS])
def test_what_is_asked_for_is_what_is_taken(name: str) -> None:
    assert choose_timer(find_timer(name), NVIDIA, distributed=False).timer.name == name


@pytest.mark.spec("X12")
@pytest.mark.parametrize(("device", "name"), [(NVIDIA, "host"), (CPU, "kineto")], ids=["nvidia", "cpu"])
def test_several_ranks_have_one_timer_on_each_kind_of_device(device: FakeDevice, name: str) -> None:
    with pytest.raises(UsageError, match=rf"timer='{name}' with distributed= on .*, the only timer"):
        choose_timer(find_timer(name), device, distributed=True)


@pytest.mark.spec("X6")
def test_a_timer_without_an_instrument_is_unavailable_and_no_other_is_taken() -> None:
    with pytest.raises(UnavailableError, match=r"timer='later': .*no instrument 'not_here'; give .*'host'"):
        open_chosen(LaunchTimer("later", "not_here", "latency_ns"), CPU)


@pytest.mark.spec("X6")
@pytest.mark.parametrize("name", ["event", "proton", "cudagraph_proton", "kineto", "cupti"])
def test_a_timer_of_gpus_is_unavailable_on_a_cpu(name: str) -> None:
    with pytest.raises(UnavailableError, match=r"host"):
        open_chosen(find_timer(name), CPU)


def test_event_is_the_pair_of_device_events() -> None:
    assert open_chosen(find_timer("event"), OTHER).name == "device_events"
