"""Relating numbers to ceilings needs no framework."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from kernelmark.records import Cache, DeviceRecord
from kernelmark.roofline import Work, find_profile, read_roofline
profile = find_profile(DeviceRecord(kind="cuda", name="NVIDIA H200"))
read_roofline(Work(1, 1), 1.0, profile, cache=Cache.COLD)
sys.exit("torch" in sys.modules)
"""


def test_a_roofline_is_read_without_torch() -> None:
    assert subprocess.run([sys.executable, "-c", CODE], check=False).returncode == 0
