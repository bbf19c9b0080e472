"""How far a time is from what the device can do: work, ceilings, and the relation of the two.

The model is pure arithmetic over numbers that are handed in; profiles hold the ceilings, each with its source. Nothing
here measures: that is :mod:`kernelmark.calibration`.
"""

from kernelmark.roofline.model import TOLERANCE, Calibration, Figure, Profile, Rate, Work, read_roofline
from kernelmark.roofline.profiles import find_profile, load_profiles

__all__ = [
    "TOLERANCE",
    "Calibration",
    "Figure",
    "Profile",
    "Rate",
    "Work",
    "find_profile",
    "load_profiles",
    "read_roofline",
]
