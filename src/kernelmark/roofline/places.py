"""Where a user's profiles and this machine's calibrations lie, by the platform's own conventions."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["calibration_folder", "shipped_folder", "user_folders"]

_VARIABLE = "KERNELMARK_PROFILES"


def user_folders() -> tuple[Path, ...]:
    """Give the folders of the user's own profiles, those named in ``KERNELMARK_PROFILES`` first."""
    named = os.environ.get(_VARIABLE, "").split(os.pathsep)
    own = _base("XDG_CONFIG_HOME", "APPDATA", "Library/Application Support", ".config")
    return (*(Path(name).expanduser() for name in named if name), own / "kernelmark" / "profiles")


def calibration_folder() -> Path:
    """Give the folder of the measured profiles."""
    cache = _base("XDG_CACHE_HOME", "LOCALAPPDATA", "Library/Caches", ".cache")
    return cache / "kernelmark" / "calibration"


def shipped_folder() -> Path:
    """Give the folder of the profiles that come with the package."""
    return Path(__file__).parent / "profiles"


def _base(xdg: str, windows: str, macos: str, other: str) -> Path:
    told = os.environ.get(xdg, "")
    if told and Path(told).is_absolute():  # the XDG specification has relative ones ignored
        return Path(told)
    if sys.platform == "win32" and os.environ.get(windows):
        return Path(os.environ[windows])
    return Path.home() / (macos if sys.platform == "darwin" else other)
