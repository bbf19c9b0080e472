"""Keeps the measured profile of a device under what it holds for.

For a CPU that is the processor, its threads and the affinity; for another device its name, how many
multiprocessors it has and how much memory, so that a slice of a device is not taken for all of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from kernelmark.errors import ProfileError
from kernelmark.files import replace
from kernelmark.records import DeviceRecord
from kernelmark.roofline.model import Profile
from kernelmark.roofline.places import calibration_folder
from kernelmark.roofline.schema import dump_profile, read_profile

__all__ = ["calibration_file", "store_calibration", "stored_calibration"]


def calibration_file(device: DeviceRecord) -> Path:
    """Give the file of the calibration that holds for this device under these conditions."""
    if device.kind == "cpu":
        key, size = json.dumps([device.name, device.threads, device.affinity]), f"{device.threads}t"
    else:
        key = json.dumps([device.kind, device.name, device.cores, device.memory_bytes])
        size = f"{device.kind}-{device.cores}c"
    slug = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-")[:40]
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]
    return calibration_folder() / f"{slug}-{size}-{digest}.yaml"


def stored_calibration(device: DeviceRecord) -> Profile | None:
    """Give the calibration of this device under these conditions, if there is one.

    Raises:
        ProfileError: it is there and cannot be read; the message says to calibrate again.
    """
    path = calibration_file(device)
    if not path.exists():
        return None
    try:
        return read_profile(path)
    except ProfileError as error:
        raise ProfileError(f"{error}; delete the file, or calibrate again") from error


def store_calibration(profile: Profile, device: DeviceRecord) -> Path:
    """Write the calibration so that a reader sees the old one or the new one, never a part.

    Raises:
        ProfileError: it cannot be written.
    """
    path = calibration_file(device)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, dump_profile(profile))
    except OSError as error:
        raise ProfileError(
            f"the calibration cannot be kept in {path.parent}: {error.strerror}; set XDG_CACHE_HOME to a"
            " folder that can be written"
        ) from error
    return path
