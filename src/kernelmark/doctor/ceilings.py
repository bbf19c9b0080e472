"""Whether the roofline has ceilings for the best device."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmark.doctor.finding import Finding, Severity
from kernelmark.doctor.machine import Machine
from kernelmark.errors import ProfileError
from kernelmark.roofline import find_profile

__all__ = ["findings"]


def findings(machine: Machine) -> Iterator[Finding]:
    """Look for the profile that rows on the best device would be related to."""
    if machine.device is None:
        return
    try:
        profile = find_profile(machine.device)
    except ProfileError as error:
        fix = "mend or delete the file; kernelmark calibrate writes this machine's own anew"
        yield Finding("ceilings", Severity.WARNING, str(error), fix)
        return
    if profile is None:
        found = "no profile: a share of what the device can do is left blank, or measured in the first run"
        yield Finding("ceilings", Severity.NOTE, found, "kernelmark calibrate")
        return
    measured = f", measured {profile.calibration.date}" if profile.calibration else ""
    yield Finding("ceilings", Severity.OK, f"{profile.name}{measured}")
