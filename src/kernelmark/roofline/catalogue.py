"""Finds the profile of a device: the user's own, then this machine's calibration, then a shipped one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from kernelmark.errors import ProfileError
from kernelmark.records import DeviceRecord
from kernelmark.roofline.calibration_store import stored_calibration
from kernelmark.roofline.model import Profile
from kernelmark.roofline.places import shipped_folder, user_folders
from kernelmark.roofline.schema import read_profile

__all__ = ["find_profile", "load_profiles"]


def load_profiles(extra_dirs: Iterable[Path] = ()) -> tuple[Profile, ...]:
    """Read every profile there is, but calibrations; those that win stand first.

    Args:
        extra_dirs: Folders that win over all others.

    Raises:
        ProfileError: a file in one of the folders is no profile, whether or not it would be used.
    """
    return tuple(profile for folder in _folders(extra_dirs) for profile in _in_folder(folder))


def find_profile(device: DeviceRecord, extra_dirs: Iterable[Path] = ()) -> Profile | None:
    """Give the profile of ``device``; ``None`` where there is none. Measures nothing.

    Raises:
        ProfileError: two profiles of one folder claim the device, or a file is no profile.
    """
    *own, shipped = _folders(extra_dirs)
    for folder in own:
        found = _only_match(folder, device)
        if found is not None:
            return found
    return stored_calibration(device) or _only_match(shipped, device)


def _folders(extra_dirs: Iterable[Path]) -> tuple[Path, ...]:
    return (*extra_dirs, *user_folders(), shipped_folder())


def _only_match(folder: Path, device: DeviceRecord) -> Profile | None:
    claims = [profile for profile in _in_folder(folder) if profile.matches(device)]
    if len(claims) > 1:
        files = " and ".join(profile.path for profile in claims)
        raise ProfileError(
            f"{files} match the {device.kind} device {device.name!r}; narrow 'match' in all of them but one"
        )
    return claims[0] if claims else None


def _in_folder(folder: Path) -> list[Profile]:
    if not folder.is_dir():
        return []
    files = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))
    return [_read(path, path.stat().st_mtime_ns, path.stat().st_size) for path in files]


@lru_cache(maxsize=256)
def _read(path: Path, mtime_ns: int, size: int) -> Profile:
    """Read a file once for each state that it is in; a profile is asked for with every case."""
    return read_profile(path)
