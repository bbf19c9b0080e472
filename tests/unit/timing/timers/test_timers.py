"""Which timer is used is decided by what was asked for, and by nothing else."""

from __future__ import annotations

import pytest

from kernelmark.device import FakeDevice
from kernelmark.errors import UnavailableError, UsageError
from kernelmark.timing import TIMERS, Timer, open_timer


def test_without_a_name_the_device_decides() -> None:
    assert open_timer(None, FakeDevice(default_timer="host")).name == "host"
    assert open_timer(None, FakeDevice(kind="cuda", default_timer="device_events")).name == "device_events"


@pytest.mark.parametrize("entry", TIMERS, ids=lambda entry: entry.name)
def test_every_timer_in_the_table_loads_under_its_own_name(entry) -> None:
    loaded = entry.load()
    assert issubclass(loaded, Timer)
    assert loaded.name == entry.name


@pytest.mark.spec("T34")
@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps"])
def test_events_serve_every_accelerator(kind: str) -> None:
    assert open_timer("device_events", FakeDevice(kind=kind)).name == "device_events"


@pytest.mark.spec("T33")
@pytest.mark.parametrize("kind", ["cpu", "fake"])
def test_a_timer_that_does_not_serve_the_device_is_an_error_and_no_other_is_taken(kind: str) -> None:
    with pytest.raises(
        UnavailableError, match=rf"'device_events' serves accelerators.*kind '{kind}'; use host"
    ):
        open_timer("device_events", FakeDevice(kind=kind))


@pytest.mark.spec("T33")
def test_an_unknown_timer_is_refused_with_the_list_and_the_nearest_name() -> None:
    with pytest.raises(
        UsageError,
        match=r"no timer .device_event.; did you mean 'device_events'.*host, .*device_events, event",
    ):
        open_timer("device_event", FakeDevice(kind="cuda"))


def test_a_name_near_nothing_gets_no_hint() -> None:
    with pytest.raises(UsageError) as caught:
        open_timer("sundial", FakeDevice())
    assert "did you mean" not in str(caught.value)
