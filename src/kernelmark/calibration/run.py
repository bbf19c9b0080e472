"""Measures a device, reads its instruments, and keeps what a roofline can use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kernelmark.calibration.instruments import FULL_BUDGET, QUICK_BUDGET, Plan, Reading, read_instruments
from kernelmark.device import Device
from kernelmark.errors import UsageError
from kernelmark.records import DeviceRecord
from kernelmark.roofline import Calibration, Figure, Profile, Rate, find_profile, load_profiles
from kernelmark.roofline.calibrate_accelerator import accelerator_measured, measure_accelerator
from kernelmark.roofline.calibrate_cpu import MOST_TAKEN, cpu_measured, measure_ceilings, refuse_busy
from kernelmark.roofline.calibration_store import store_calibration
from kernelmark.roofline.ceilings import FULL, QUICK, Ceilings
from kernelmark.units import format_percent

__all__ = ["Outcome", "calibrate"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured, and where it is kept; ``path`` is ``None`` where nothing is."""

    device: DeviceRecord
    profile: Profile
    readings: tuple[Reading, ...]
    doubts: tuple[str, ...] = ()
    path: Path | None = None
    overruled_by: str = ""
    """A profile of the user's own that counts in place of this one."""

    @property
    def measured(self) -> Mapping[str, float]:
        """Every figure under a name that ends with its unit."""
        return self.profile.calibration.measured if self.profile.calibration else {}


def calibrate(device: Device, *, quick: bool = False) -> Outcome:
    """Measure ``device``: its ceilings, then its instruments; keep the profile.

    Args:
        device: A CPU or an accelerator.
        quick: Take a fraction of the time, and keep nothing.

    Raises:
        UnavailableError: other processes took so much of the CPU that the ceilings would be too low, and they
            were to be kept.
        ProfileError: the calibration cannot be kept.
    """
    if device.kind == "fake":
        raise UsageError("a fake device has no ceilings; give a CPU or an accelerator")
    record = device.describe()
    ceilings, profile, doubts = _ceilings(device, record, quick=quick)
    plan = Plan(
        budget=QUICK_BUDGET if quick else FULL_BUDGET,
        copy_bytes=ceilings.buffer_bytes,
        best_bytes_per_s=profile.bandwidth.per_s,
    )
    readings = read_instruments(device, plan)
    doubts = (*doubts, *(f"{each.timer}, {each.what}: {each.note}" for each in readings if each.doubtful))
    outcome = Outcome(record, _with_readings(profile, readings), readings, doubts)
    return outcome if quick else _kept(outcome)


def _ceilings(
    device: Device, record: DeviceRecord, *, quick: bool
) -> tuple[Ceilings, Profile, tuple[str, ...]]:
    device.synchronize()  # now this process is on the device, and is not taken for a neighbour
    effort, before = QUICK if quick else FULL, device.telemetry()
    if record.kind == "cpu":
        ceilings = measure_ceilings(record, effort)
        if not quick:
            refuse_busy(ceilings)
        return ceilings, cpu_measured(record, ceilings, before.load_average), _busy(ceilings)
    ceilings = measure_accelerator(device, effort)
    measured = accelerator_measured(record, ceilings, before, device.telemetry())
    others = ", ".join(before.other_processes)
    doubts = (f"other processes were on the device: {others}; the ceilings may be too low",) if others else ()
    return ceilings, replace(measured, flops={**_told(record), **measured.flops}), doubts


def _busy(ceilings: Ceilings) -> tuple[str, ...]:
    taken = ceilings.taken_by_others
    if taken is None or taken <= MOST_TAKEN:
        return ()
    return (f"other processes took {format_percent(taken)} of the CPU, so the ceilings are too low",)


def _told(record: DeviceRecord) -> dict[Rate, Figure]:
    """Give the rates of the profile that the device has without a calibration, each with its own source."""
    known = next((profile for profile in load_profiles() if profile.matches(record)), None)
    return dict(known.flops) if known else {}


def _with_readings(profile: Profile, readings: tuple[Reading, ...]) -> Profile:
    calibration = profile.calibration or Calibration("")
    read = {each.key: each.read_ns for each in readings if each.key and each.read_ns is not None}
    return replace(profile, calibration=replace(calibration, measured={**calibration.measured, **read}))


def _kept(outcome: Outcome) -> Outcome:
    path = store_calibration(outcome.profile, outcome.device)
    used = find_profile(outcome.device)
    overruled = used.path if used is not None and used.path != str(path) else ""
    return replace(outcome, path=path, overruled_by=overruled)
