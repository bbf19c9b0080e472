"""Calibration: a device's ceilings, and what each instrument reads of calls whose length is known.

It composes what the roofline and the timing measure; the profile that comes out is the roofline's.
"""

from kernelmark.calibration.instruments import Plan, Reading, read_instruments
from kernelmark.calibration.run import Outcome, calibrate

__all__ = ["Outcome", "Plan", "Reading", "calibrate", "read_instruments"]
