"""How much memory the host has left, and whether an exception says that memory ran out."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

__all__ = ["available_memory", "is_out_of_memory", "total_memory"]

_NO_LIMIT = 1 << 60  # control groups write "no limit" as a number near 2**63

# What torch raises as a plain RuntimeError: its CPU allocator, the allocators of some accelerators, cuBLAS.
_MESSAGES = re.compile(
    r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|\bout of memory\b"
    r"|OUT_OF_(?:DEVICE_|HOST_)?MEMORY\b|_STATUS_ALLOC_FAILED\b",
    re.IGNORECASE,
)


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether ``error`` means that the host or a device ran out of memory.

    Only what an allocator raises counts: ``MemoryError``, torch's own class, ``ENOMEM`` from the system, or a
    plain ``RuntimeError`` in an allocator's words. Any other class is what it says it is, whatever its text.
    """
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    plain = type(error) in (RuntimeError, getattr(torch, "AcceleratorError", RuntimeError))
    return plain and _MESSAGES.search(str(error)) is not None  # house: torch has no class for it


def total_memory() -> int | None:
    """Give the memory of this host in bytes; ``None`` where it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def available_memory(root: Path = Path("/")) -> int | None:
    """Give what can still be allocated without swapping, in bytes, the process's own limit included."""
    readings = [_system(root), _control_group(root)]
    return min((reading for reading in readings if reading is not None), default=None)


def _system(root: Path) -> int | None:
    try:
        text = (root / "proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    match = re.search(r"^MemAvailable:\s*([0-9]+) kB$", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _control_group(root: Path) -> int | None:
    """Read the limit of a container, version 2 then 1; file pages that can be dropped count as free."""
    for folder, limit_file, used_file, droppable in (
        ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
        ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, used = _number(root / folder / limit_file), _number(root / folder / used_file)
        if limit is not None and used is not None and limit < _NO_LIMIT:
            return max(0, limit - used + _statistic(root / folder / "memory.stat", droppable))
    return None


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _statistic(path: Path, name: str) -> int:
    try:
        text = path.read_text(encoding="ascii")
    except OSError:
        return 0
    match = re.search(rf"^{name} ([0-9]+)$", text, re.MULTILINE)
    return int(match[1]) if match else 0
