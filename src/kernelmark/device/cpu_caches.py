"""How large the data caches of a processor are, from what the system says of them.

Reads files and asks the C library; holds no buffer and evicts nothing. Every reading is over a root folder
or a function that is handed in, so that a made-up machine can be read as well as this one.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kernelmark.device.base import CacheSizes

__all__ = ["ASSUMED_LAST_LEVEL", "cpu_caches", "parse_cpu_list", "parse_size"]

ASSUMED_LAST_LEVEL = 32 << 20
"""Taken where a system tells nothing: as much as a large desktop processor has, so a flush errs upwards."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

# glibc's constants for the cache sizes of the processor it runs on; Python has no names for them.
_GLIBC_SIZES = {"L1d": 188, "L2": 191, "L3": 194, "L4": 197}
_SYSCTL_SIZES = {"L1d": "hw.l1dcachesize", "L2": "hw.l2cachesize", "L3": "hw.l3cachesize"}
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class _Cache:
    level: int
    kind: str
    size: int
    shared_by: frozenset[int]

    @property
    def name(self) -> str:
        return f"L{self.level}d" if self.kind == "Data" else f"L{self.level}"


def cpu_caches(cpus: Collection[int], *, root: Path = Path("/")) -> CacheSizes:
    """Read the caches that the processors ``cpus`` reach.

    The system's own tables first, then the C library, then (macOS) the kernel's variables. Where none of
    them tells a size, a documented one is assumed, and ``source`` says so.
    """
    found = _from_sysfs(root, cpus)
    if found is None and root == Path("/"):
        found = _from_numbers(_ask_glibc, _GLIBC_SIZES, "the C library", len(cpus))
        found = found or _from_numbers(_ask_sysctl, _SYSCTL_SIZES, "sysctl", len(cpus))
    return found or CacheSizes(
        by_level={},
        last_level=ASSUMED_LAST_LEVEL,
        source=f"assumed {ASSUMED_LAST_LEVEL >> 20} MiB: this system tells no cache size",
    )


def parse_size(text: str) -> int | None:
    """Read a size as the kernel writes it, such as ``2048K``; ``None`` where it is none."""
    match = re.fullmatch(r"([0-9]+)([KMG]?)", text.strip())
    return int(match[1]) * _UNITS[match[2]] if match else None


def parse_cpu_list(text: str) -> frozenset[int]:
    """Read a list of processors as the kernel writes it, such as ``0-3,8``; what is malformed is left out."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part.strip())
        if match:
            cpus.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(cpus)


def _from_sysfs(root: Path, cpus: Collection[int]) -> CacheSizes | None:
    # A cache is listed once for each processor that shares it; equal entries are one cache.
    caches = {
        cache for cpu in cpus for cache in _listed(root / f"sys/devices/system/cpu/cpu{cpu}/cache", cpu)
    }
    if not caches:
        return None
    last = max(cache.level for cache in caches)
    by_level: dict[str, int] = {}
    for cache in sorted(caches, key=lambda cache: (cache.level, cache.size)):
        by_level[cache.name] = cache.size  # of unlike cores, the larger one's
    return CacheSizes(
        by_level=by_level,
        last_level=sum(cache.size for cache in caches if cache.level == last),
        private_total=sum(cache.size for cache in caches if cache.level < last),
        source="sysfs",
    )


def _listed(folder: Path, cpu: int) -> Iterator[_Cache]:
    for entry in sorted(folder.glob("index[0-9]*")):
        size = parse_size(_read(entry / "size"))
        level = _read(entry / "level").strip()
        kind = _read(entry / "type").strip()
        if size and level.isdecimal() and kind in ("Data", "Unified"):
            shared = parse_cpu_list(_read(entry / "shared_cpu_list"))
            yield _Cache(int(level), kind, size, shared or frozenset({cpu}))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _from_numbers(
    ask: Callable[[_Key], int], keys: dict[str, _Key], source: str, cpus: int
) -> CacheSizes | None:
    """Build the sizes from one number a level, which tell nothing of sharing.

    The last level is taken for shared by all processors and every other one for each processor's own.
    """
    by_level = {name: size for name, key in keys.items() if (size := ask(key)) > 0}
    if not by_level:
        return None
    *private, last = by_level.values()
    return CacheSizes(by_level, last_level=last, private_total=sum(private) * max(1, cpus), source=source)


def _ask_glibc(key: int) -> int:
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return os.sysconf(key)
    except (OSError, ValueError):  # another C library does not know the number
        return 0


def _ask_sysctl(name: str) -> int:
    if sys.platform != "darwin":
        return 0
    value, size = ctypes.c_uint64(), ctypes.c_size_t(8)
    library = ctypes.CDLL(None)
    failed = library.sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
    return 0 if failed else value.value
