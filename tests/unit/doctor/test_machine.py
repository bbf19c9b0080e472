"""What is read of this machine, and of a made-up one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark import device
from kernelmark.device import FakeDevice
from kernelmark.device.cpu_facts import available_cpus
from kernelmark.doctor import examine, machine
from kernelmark.doctor.machine import Finding, Machine, Severity, share_taken, worst
from kernelmark.errors import UsageError
from kernelmark.probe import Probe
from kernelmark.records import ProbeReading


def test_the_share_that_others_take_is_what_the_system_counts_less_our_own(root) -> None:
    def stat(user: int) -> None:
        root.write("proc/stat", f"cpu  0 0 0 0\ncpu0 {user} 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n")

    stat(100)
    taken = share_taken((0, 1), root.folder, watch_s=1.0, sleep=lambda _: stat(200))
    assert taken == pytest.approx(0.5, abs=0.05)  # one of two processors for a second, at 100 ticks a second


def test_nobody_says_what_others_take_where_nothing_counts(tmp_path: Path) -> None:
    assert share_taken((0, 1), tmp_path, watch_s=0.0, sleep=lambda _: None) is None


def test_without_torch_the_rest_of_the_machine_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_WATCH_S", 0.0)
    monkeypatch.setattr(machine.probe, "module", lambda name: Probe(False, "not installed"))
    monkeypatch.setattr(machine, "share_taken", lambda cpus, root: None)
    read = machine.read_machine()
    assert (read.torch, read.device, read.timers) == (None, None, ())
    assert tuple(read.cpus) == available_cpus()
    found = examine(read)
    assert worst(finding for findings in found.values() for finding in findings) is Severity.MISSING


def test_the_best_device_is_waited_for_read_and_then_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeDevice()
    monkeypatch.setattr(device, "open_device", lambda name: fake, raising=False)
    monkeypatch.setattr(machine, "share_taken", lambda cpus, root: 0.25)
    read = machine.read_machine()
    assert fake.log[:3] == ["synchronize", "telemetry", "flush"]
    assert read.device == fake.describe()
    assert read.telemetry.clock_mhz == 1000.0
    assert [(trial.name, trial.failure) for trial in read.timers] == [("host", "")]
    assert isinstance(read.probe, ProbeReading)
    assert read.torch is not None
    assert read.torch.threads >= 1
    assert read.taken_by_others == 0.25


@pytest.mark.parametrize("mark", ["proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg"])
def test_an_nvidia_device_shows_in_the_system(cpu_machine: Machine, root, mark: str) -> None:
    assert not cpu_machine.has_nvidia
    root.write(mark)
    assert cpu_machine.has_nvidia


def test_a_machine_on_which_all_works_is_well_in_every_subject(
    cpu_machine: Machine, gpu_machine: Machine
) -> None:
    found = examine(gpu_machine)
    assert list(found) == [
        "torch",
        "NVIDIA",
        "instruments",
        "accelerator",
        "host",
        "caches",
        "roofline",
        "ways in",
    ]
    assert worst(finding for findings in found.values() for finding in findings) is Severity.NOTE
    assert "accelerator" not in examine(cpu_machine)


# --- findings ---------------------------------------------------------------------------------------------


findings = st.lists(st.builds(Finding, st.just("x"), st.sampled_from(Severity), st.just("y"), st.just("z")))


@pytest.mark.parametrize("severity", [each for each in Severity if each is not Severity.OK])
def test_what_is_not_well_needs_a_fix(severity: Severity) -> None:
    with pytest.raises(UsageError, match=r"'ncu' is a .* without a fix"):
        Finding("ncu", severity, "not there")


def test_what_is_well_needs_none() -> None:
    assert Finding("ncu", Severity.OK, "there").fix == ""


@given(findings)
def test_the_worst_is_there_and_nothing_is_graver(found: list[Finding]) -> None:
    order = [Severity.OK, Severity.NOTE, Severity.WARNING, Severity.MISSING]
    gravest = worst(found)
    assert gravest is Severity.OK or gravest in {each.severity for each in found}
    assert all(order.index(each.severity) <= order.index(gravest) for each in found)
