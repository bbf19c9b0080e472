"""How this process's malloc treats large blocks: kept for the next call, not handed back to the system.

Compiled code that allocates inside a call pays for it otherwise: three buffers of 4 MB a call, mapped and
unmapped each time, left a matrix product of 1024³ at 150 GFLOPS, against 232 with these settings. They hold for the
whole process, so every contestant in it has them.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache

__all__ = ["keep_large_blocks"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""``M_TRIM_THRESHOLD`` and ``M_MMAP_THRESHOLD`` of glibc's ``malloc.h``."""
_WANTED = {
    "mmap_threshold": (_MMAP_THRESHOLD, "MALLOC_MMAP_THRESHOLD_", (1 << 30, 32 << 20)),
    "trim_threshold": (_TRIM_THRESHOLD, "MALLOC_TRIM_THRESHOLD_", ((1 << 31) - 1,)),
}
"""Setting: its number, the variable by which a user has set it already, values to try, the wished-for first.

Versions of glibc below 2.35 refuse an mmap threshold above 32 MiB. A value is a C int.
"""


@lru_cache(maxsize=1)
def keep_large_blocks() -> dict[str, str]:
    """Set it, once for this process, and give what is in force, for the record.

    What the environment sets is left alone. Where malloc is not glibc's, nothing is set and the record says so.
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
        mallopt = libc.mallopt
        libc.gnu_get_libc_version.restype = ctypes.c_char_p
        version = libc.gnu_get_libc_version().decode()
    except (OSError, AttributeError):
        return {"malloc": "not glibc's; its thresholds are as they were"}
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    said = {"malloc": f"glibc {version}"}
    for name, (number, variable, values) in _WANTED.items():
        if variable in os.environ:
            said[name] = f"{os.environ[variable]} ({variable})"
        else:
            taken = next((value for value in values if mallopt(number, value) == 1), None)
            said[name] = "refused" if taken is None else str(taken)
    return said
