"""Profile files: how one is read and written, where they lie, and which one holds for a device.

A device's profile is the user's own, then this machine's calibration, then a shipped one. A calibration is kept under
what it holds for: a CPU's name, threads and affinity; another device's name, its number of multiprocessors and its
memory, so that a slice of a device is not taken for all of it. Errors name the file, the line and the field.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, ValidationError

from kernelmark.errors import ProfileError
from kernelmark.files import replace
from kernelmark.files.source import FileKind, Source, parse_source, read_source
from kernelmark.files.strict import StrictModel, problems_of
from kernelmark.records import DeviceRecord
from kernelmark.roofline.model import Calibration, Figure, Profile, Rate

__all__ = [
    "calibration_file",
    "dump_profile",
    "find_profile",
    "load_profiles",
    "parse_profile",
    "read_profile",
    "store_calibration",
    "stored_calibration",
    "user_folders",
]

_KIND = FileKind("a profile", "'name', 'kind', 'match', 'bandwidth' and 'flops'", ProfileError)
_SHIPPED = Path(__file__).parent / "profiles"
_PerSecond = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Text = Annotated[str, Field(min_length=1, pattern=r"\S")]


class _Bandwidth(StrictModel):
    bytes_per_s: _PerSecond
    source: _Text


class _Flops(StrictModel):
    flops_per_s: _PerSecond
    source: _Text


class _Calibration(StrictModel):
    date: _Text
    conditions: dict[str, str] = Field(default_factory=dict)
    measured: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)


class _Profile(StrictModel):
    name: _Text
    kind: _Text
    match: Annotated[list[_Text], Field(min_length=1)]
    bandwidth: _Bandwidth
    flops: dict[Annotated[Rate, Field(strict=False)], _Flops]
    calibration: _Calibration | None = None


# --- one file -------------------------------------------------------------------------------------


def read_profile(path: Path) -> Profile:
    """Read one file.

    Raises:
        ProfileError: it cannot be read, or lacks what a profile must hold.
    """
    return _profile(read_source(path, kind=_KIND))


def parse_profile(text: str, path: str) -> Profile:
    """Parse the text of one file.

    Raises:
        ProfileError: it is not YAML, or lacks what a profile must hold.
    """
    return _profile(parse_source(text, path, kind=_KIND))


def _profile(source: Source) -> Profile:
    try:
        model = _Profile.model_validate(source.value)
    except ValidationError as error:
        raise problems_of(source, error)[0] from error
    measured = model.calibration
    return Profile(
        name=model.name,
        kind=model.kind,
        match=tuple(model.match),
        bandwidth=Figure(model.bandwidth.bytes_per_s, model.bandwidth.source),
        flops={rate: Figure(figure.flops_per_s, figure.source) for rate, figure in model.flops.items()},
        calibration=Calibration(measured.date, measured.conditions, measured.measured) if measured else None,
        path=source.path,
    )


class _Dumper(yaml.SafeDumper):
    """Quotes the text that YAML 1.2 would read as a number, such as ``1e5``, and YAML 1.1 would not."""


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9.]+[eE][-+]?[0-9]+\Z"), list("-+.0123456789")
)


def dump_profile(profile: Profile) -> str:
    """Write a profile as the text of a file that :func:`parse_profile` reads back."""
    fields: dict[str, Any] = {
        "name": profile.name,
        "kind": profile.kind,
        "match": list(profile.match),
        "bandwidth": {"bytes_per_s": profile.bandwidth.per_s, "source": profile.bandwidth.source},
        "flops": {
            rate.value: {"flops_per_s": figure.per_s, "source": figure.source}
            for rate, figure in profile.flops.items()
        },
    }
    if (calibration := profile.calibration) is not None:
        fields["calibration"] = {"date": calibration.date, "conditions": dict(calibration.conditions)}
        if calibration.measured:
            fields["calibration"]["measured"] = dict(calibration.measured)
    return yaml.dump(fields, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


# --- all files ------------------------------------------------------------------------------------


def load_profiles(extra_dirs: Iterable[Path] = ()) -> tuple[Profile, ...]:
    """Read every profile there is, but calibrations; those that win stand first.

    Args:
        extra_dirs: Folders that win over all others.

    Raises:
        ProfileError: a file in one of the folders is no profile, whether or not it would be used.
    """
    folders = (*extra_dirs, *user_folders(), _SHIPPED)
    return tuple(profile for folder in folders for profile in _in_folder(folder))


def find_profile(device: DeviceRecord, extra_dirs: Iterable[Path] = ()) -> Profile | None:
    """Give the profile of ``device``; ``None`` where there is none. Measures nothing.

    Raises:
        ProfileError: two profiles of one folder claim the device, or a file is no profile.
    """
    for folder in (*extra_dirs, *user_folders()):
        if found := _only_match(folder, device):
            return found
    return stored_calibration(device) or _only_match(_SHIPPED, device)


def user_folders() -> tuple[Path, ...]:
    """Give the folders of the user's own profiles, those named in ``KERNELMARK_PROFILES`` first."""
    named = os.environ.get("KERNELMARK_PROFILES", "").split(os.pathsep)
    own = _base("XDG_CONFIG_HOME", "APPDATA", "Library/Application Support", ".config")
    return (*(Path(name).expanduser() for name in named if name), own / "kernelmark" / "profiles")


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


def _base(xdg: str, windows: str, macos: str, other: str) -> Path:
    told = os.environ.get(xdg, "")
    if told and Path(told).is_absolute():  # the XDG specification has relative ones ignored
        return Path(told)
    if sys.platform == "win32" and os.environ.get(windows):
        return Path(os.environ[windows])
    return Path.home() / (macos if sys.platform == "darwin" else other)


# --- calibrations ---------------------------------------------------------------------------------


def calibration_file(device: DeviceRecord) -> Path:
    """Give the file of the calibration that holds for this device under these conditions."""
    if device.kind == "cpu":
        key, size = json.dumps([device.name, device.threads, device.affinity]), f"{device.threads}t"
    else:
        key = json.dumps([device.kind, device.name, device.cores, device.memory_bytes])
        size = f"{device.kind}-{device.cores}c"
    slug = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-")[:40]
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]
    cache = _base("XDG_CACHE_HOME", "LOCALAPPDATA", "Library/Caches", ".cache")
    return cache / "kernelmark" / "calibration" / f"{slug}-{size}-{digest}.yaml"


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
