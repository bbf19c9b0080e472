"""How far a time is from what the device can do: work, ceilings, and the relation of the two.

The model is pure arithmetic over numbers that are handed in; profiles hold the ceilings, each with its
source. Nothing here imports torch but the calibration of a CPU, when it is asked to measure.
"""

from kernelmark.roofline.calibrate_cpu import cpu_profile
from kernelmark.roofline.catalogue import find_profile, load_profiles
from kernelmark.roofline.model import Calibration, Figure, Profile, Rate, Work, read_roofline

__all__ = [
    "Calibration",
    "Figure",
    "Profile",
    "Rate",
    "Work",
    "cpu_profile",
    "find_profile",
    "load_profiles",
    "read_roofline",
]
