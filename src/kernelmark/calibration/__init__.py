"""Calibration: a device's ceilings, and what each instrument reads of calls whose length is known.

It composes what the timing measures with rates of its own; the profile that comes out is the roofline's.
"""

from typing import TYPE_CHECKING

from kernelmark.lazy import lazy

if TYPE_CHECKING:
    from kernelmark.calibration.ceilings import MOST_TAKEN
    from kernelmark.calibration.instruments import Plan, Reading, read_instruments
    from kernelmark.calibration.run import Outcome, calibrate, profile_for

__all__ = ["MOST_TAKEN", "Outcome", "Plan", "Reading", "calibrate", "profile_for", "read_instruments"]

__getattr__, __dir__ = lazy(__name__)
