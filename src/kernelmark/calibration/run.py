"""Measures a device, reads its instruments, and keeps what a roofline can use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kernelmark.calibration.ceilings import (
    FULL,
    MOST_TAKEN,
    QUICK,
    measure_ceilings,
    measured_profile,
    refuse_busy,
)
from kernelmark.calibration.instruments import FULL_BUDGET, QUICK_BUDGET, Plan, Reading, read_instruments
from kernelmark.calibration.processor import c_compiler
from kernelmark.device import Device
from kernelmark.errors import UnavailableError, UsageError
from kernelmark.records import DeviceRecord
from kernelmark.roofline import Calibration, Figure, Profile, Rate, find_profile, load_profiles
from kernelmark.roofline.profiles import calibration_file, store_calibration
from kernelmark.units import format_percent

__all__ = ["Outcome", "calibrate", "profile_for"]

_QUIET = 0.05
"""A calibration during which others took more of the CPU may be too low; it is repeated when there is less to do."""


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


def profile_for(device: Device) -> Profile | None:
    """Give the profile that rows on ``device`` are related to; ``None`` where there is none.

    A CPU has no datasheet figure worth having: where the user has no profile of it, it is measured now, in up to 8 s,
    and kept. It is measured again where the kept one was measured under load and the machine has become quieter, or
    before the processor's own loops were measured.

    Raises:
        UnavailableError: other processes took so much of the CPU that the ceilings would be too low.
        ProfileError: a profile cannot be read, or the calibration cannot be kept.
    """
    record = device.describe()
    found = find_profile(record)
    if record.kind != "cpu" or (found is not None and not _in_doubt(found, device, record)):
        return found
    load = device.telemetry()
    ceilings = measure_ceilings(device)
    try:
        refuse_busy(ceilings)
    except UnavailableError:
        if found is None:
            raise
        return found
    profile = measured_profile(record, ceilings, load)
    if found is not None and _taken(found) < _taken(profile) and _has_loops(found):
        return found
    return replace(profile, path=str(store_calibration(profile, record)))


def _in_doubt(found: Profile, device: Device, record: DeviceRecord) -> bool:
    if found.path != str(calibration_file(record)):
        return False  # the user's own
    if not _has_loops(found):
        return c_compiler() is not None
    then, now = _figure(found, "load_average"), device.telemetry().load_average
    return _taken(found) > _QUIET and now is not None and then is not None and now <= then / 2


def _figure(profile: Profile, name: str) -> float | None:
    return profile.calibration.measured.get(name) if profile.calibration else None


def _taken(profile: Profile) -> float:
    return _figure(profile, "taken_by_others") or 0.0


def _has_loops(profile: Profile) -> bool:
    return _figure(profile, f"loop_{Rate.FLOAT32.value}_flops_per_s") is not None


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
    device.synchronize()  # now this process is on the device, and is not taken for a neighbour
    before = device.telemetry()
    ceilings = measure_ceilings(device, QUICK if quick else FULL)
    if not quick:
        refuse_busy(ceilings)
    profile = measured_profile(record, ceilings, before, None if record.kind == "cpu" else device.telemetry())
    profile = replace(profile, flops={**_told(record), **profile.flops})
    plan = Plan(
        budget=QUICK_BUDGET if quick else FULL_BUDGET,
        copy_bytes=ceilings.buffer_bytes,
        best_bytes_per_s=profile.bandwidth.per_s,
    )
    readings = read_instruments(device, plan)
    doubts = [f"{each.timer}, {each.what}: {each.note}" for each in readings if each.doubtful]
    if (taken := ceilings.taken_by_others or 0.0) > MOST_TAKEN:
        doubts.insert(
            0, f"other processes took {format_percent(taken)} of the CPU, so the ceilings are too low"
        )
    if others := ", ".join(before.other_processes):
        doubts.insert(0, f"other processes were on the device: {others}; the ceilings may be too low")
    outcome = Outcome(record, _with_readings(profile, readings), readings, tuple(doubts))
    return outcome if quick else _kept(outcome)


def _told(record: DeviceRecord) -> dict[Rate, Figure]:
    """Give the rates of the profile that a device has without a calibration, each with its own source."""
    known = next((profile for profile in load_profiles() if profile.matches(record)), None)
    return dict(known.flops) if known and record.kind != "cpu" else {}


def _with_readings(profile: Profile, readings: tuple[Reading, ...]) -> Profile:
    calibration = profile.calibration or Calibration("")
    read = {each.key: each.read_ns for each in readings if each.key and each.read_ns is not None}
    return replace(profile, calibration=replace(calibration, measured={**calibration.measured, **read}))


def _kept(outcome: Outcome) -> Outcome:
    path = store_calibration(outcome.profile, outcome.device)
    used = find_profile(outcome.device)
    overruled = used.path if used is not None and used.path != str(path) else ""
    return replace(outcome, path=path, overruled_by=overruled)
