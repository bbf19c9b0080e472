"""Large blocks stay with the process, and the record says what is in force."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, json
from torchsched.heap import keep_large_blocks

said = keep_large_blocks()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = (ctypes.c_void_p,)


def faults():
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def call(size=64 << 20):
    block = libc.malloc(ctypes.c_size_t(size))
    ctypes.memset(block, 1, size)
    libc.free(block)


call()
before = faults()
for _ in range(3):
    call()
print(json.dumps({"said": said, "faults": faults() - before, "same": keep_large_blocks() is said}))
"""


def _said(**environment: str) -> dict[str, object]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=60,
        env={**others, **environment},
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture(autouse=True)
def _glibc() -> None:
    try:
        assert ctypes.CDLL("libc.so.6").gnu_get_libc_version
    except (OSError, AttributeError):
        pytest.skip("malloc is not glibc's")


def test_a_large_block_that_was_freed_is_used_again_without_new_pages() -> None:
    found = _said()
    said = found["said"]
    assert isinstance(said, dict)
    assert said["mmap_threshold"] in (str(1 << 30), str(32 << 20))
    assert said["trim_threshold"] == str((1 << 31) - 1)
    assert said["malloc"].startswith("glibc 2.")
    if said["mmap_threshold"] == str(1 << 30):
        assert found["faults"] < 100  # mapped anew they are 16384 pages a call
    assert found["same"] is True


def test_what_the_environment_sets_is_left_alone() -> None:
    found = _said(MALLOC_MMAP_THRESHOLD_="65536")
    said = found["said"]
    assert isinstance(said, dict)
    assert said["mmap_threshold"] == "65536 (MALLOC_MMAP_THRESHOLD_)"
    assert found["faults"] > 1000  # unless a page is large, and then few are enough
