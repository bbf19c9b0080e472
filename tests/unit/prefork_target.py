"""What the processes of test_prefork.py do; a server imports it by name."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
import time
from pathlib import Path


def main(arguments: list[str]) -> int:
    how, *rest = arguments
    return {
        "print": say,
        "return": lambda: 3,
        "exit": lambda: sys.exit(4),
        "raise": fail,
        "segfault": lambda: ctypes.string_at(0) and 0,
        "hang": hang,
        "memory": allocate,
        "meet": meet,
        "modules": lambda: int("decimal" not in sys.modules),
    }[how](*rest)


def say(text: str) -> int:
    print(text)
    return 0


def fail() -> int:
    raise ValueError("mine")


def hang() -> int:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    print(child.pid, flush=True)
    time.sleep(60)
    return 0


def allocate() -> int:
    try:
        mmap.mmap(-1, 2 << 30).close()  # not touched, so that nothing is written
    except OSError as error:
        print(error)
        return 5
    return 0


def meet(name: str, folder: str) -> int:
    """Wait for the other one; both can only end if both run."""
    (Path(folder) / f"{name}.here").touch()
    other = {"a": "b", "b": "a"}[name]
    for _ in range(1000):
        if (Path(folder) / f"{other}.here").exists():
            print(f"met {other}")
            return 0
        time.sleep(0.01)
    return 1
