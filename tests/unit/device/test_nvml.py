"""What NVML says is put into words; what it does not say stays empty, with the reason."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.device.nvml import NvmlReader, others_on_device, throttle_reasons
from kernelmark.records import Telemetry


class NVMLError(Exception):
    pass


class ALibrary(ModuleType):
    """The part of pynvml that is used, over one made-up device; what is in ``refuses`` is not supported."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, *, refuses: tuple[str, ...] = (), pids: tuple[int, ...] = ()) -> None:
        super().__init__("pynvml")
        self.refuses, self.pids, self.asked = refuses, pids, []

    def _answer(self, name: str, answer: object) -> object:
        self.asked.append(name)
        if name in self.refuses:
            raise NVMLError(f"{name}: Not Supported")
        return answer

    def nvmlInit(self) -> None:  # noqa: N802
        self._answer("init", None)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> object:  # noqa: N802
        return self._answer("uuid", ("by uuid", uuid))

    def nvmlDeviceGetHandleByPciBusId(self, address: str) -> object:  # noqa: N802
        return self._answer("pci", ("by address", address))

    def nvmlSystemGetDriverVersion(self) -> object:  # noqa: N802
        return self._answer("driver", b"580.1")

    def nvmlDeviceGetClockInfo(self, handle: object, clock: int) -> object:  # noqa: N802
        return self._answer("clock", {1: 1980, 2: 3201}[clock])

    def nvmlDeviceGetPowerUsage(self, handle: object) -> object:  # noqa: N802
        return self._answer("power", 124_716)

    def nvmlDeviceGetTemperature(self, handle: object, sensor: int) -> object:  # noqa: N802
        return self._answer("temperature", 39)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: object) -> object:  # noqa: N802
        return self._answer("reasons", 0x4)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: object) -> object:  # noqa: N802
        return self._answer("processes", [SimpleNamespace(pid=pid) for pid in self.pids])


def install(monkeypatch: pytest.MonkeyPatch, library: ALibrary) -> ALibrary:
    from importlib.machinery import ModuleSpec

    library.__spec__ = ModuleSpec("pynvml", None)
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return library


def test_reasons_are_told_in_words() -> None:
    assert throttle_reasons(0) == ()
    assert throttle_reasons(0x4 | 0x40) == ("software power cap", "hardware thermal slowdown")
    assert throttle_reasons(0x1000 | 0x1) == ("idle", "unknown reason 0x1000")


@given(st.integers(0, 2**20))
def test_no_reason_is_lost(bits: int) -> None:
    assert bool(throttle_reasons(bits)) == bool(bits)


def test_this_process_is_not_another_one() -> None:
    assert others_on_device([], 7) == ()
    assert others_on_device([7], 7) == ()
    assert others_on_device([3, 7, 9], 7) == ("pid 3", "pid 9")


def test_in_a_container_one_entry_is_this_process_under_a_pid_of_the_host() -> None:
    assert others_on_device([90001], 7) == ()
    assert others_on_device([90001, 90002, 90003], 7) == ("2 with the pid of another namespace",)


def test_without_the_library_nothing_is_read_and_the_reason_names_the_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    reader = NvmlReader("GPU-1", None)
    assert reader.read() == Telemetry()
    assert reader.driver() is None
    assert "kernelmark[cuda]" in reader.reason


def test_the_device_is_found_by_its_uuid_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, ALibrary())
    reader = NvmlReader("GPU-1", "00000000:00:06.0")
    assert reader.reason == ""
    assert reader.driver() == "580.1"
    assert reader.read() == Telemetry(
        clock_mhz=1980,
        memory_clock_mhz=3201,
        power_w=124.716,
        temperature_c=39,
        throttle_reasons=("software power cap",),
    )


def test_a_uuid_that_nvml_does_not_know_falls_back_to_the_pci_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = install(monkeypatch, ALibrary(refuses=("uuid",)))
    assert NvmlReader("MIG-1", "00000000:00:06.0").reason == ""
    assert library.asked == ["init", "uuid", "pci"]


@pytest.mark.parametrize("refuses", [("init",), ("uuid", "pci")])
def test_a_device_that_nvml_cannot_find_is_read_as_nothing_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, refuses: tuple[str, ...]
) -> None:
    install(monkeypatch, ALibrary(refuses=refuses))
    reader = NvmlReader("GPU-1", "00000000:00:06.0")
    assert "Not Supported" in reader.reason
    assert reader.read() == Telemetry()


def test_what_this_device_does_not_tell_is_empty_and_the_rest_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, ALibrary(refuses=("power", "reasons", "processes"), pids=(1, 2)))
    assert NvmlReader("GPU-1", None).read() == Telemetry(
        clock_mhz=1980, memory_clock_mhz=3201, temperature_c=39
    )
