"""Out of memory is told from other errors, and what is left is read with a container's limit."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
import torch

from kernelmark.device import is_out_of_memory
from kernelmark.device.memory import available_memory, total_memory

GIB = 1 << 30


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def meminfo(root: Path, available: int) -> None:
    write(root, "proc/meminfo", f"MemTotal: 99 kB\nMemFree: 1 kB\nMemAvailable:   {available // 1024} kB\n")


@pytest.mark.spec("T21")
def test_torchs_own_allocator_running_out_is_out_of_memory() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


@pytest.mark.spec("T21")
def test_pythons_and_numpys_allocators_running_out_is_out_of_memory() -> None:
    with pytest.raises(MemoryError) as from_numpy:
        np.empty(2**60, dtype=np.uint8)
    assert is_out_of_memory(from_numpy.value)
    with pytest.raises(MemoryError) as from_python:
        bytes(2**62)
    assert is_out_of_memory(from_python.value)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 99 bytes."),
        RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"),
        RuntimeError("UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
    ids=str,
)
@pytest.mark.spec("T21")
def test_the_words_of_allocators_are_known(error: Exception) -> None:
    assert is_out_of_memory(error)


class _OutOfResourcesError(RuntimeError):
    """As a kernel compiler's own error is, for a limit that has nothing to do with allocation."""


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("shape mismatch"),
        RuntimeError("Storage size calculation overflowed with sizes=[4611686018427387904]"),
        ValueError("ran out of memory slots"),
        AssertionError("out of memory"),
        OSError(errno.ENOENT, "No such file or directory"),
        _OutOfResourcesError("out of memory: shared memory, Required: 300000, Hardware limit: 232448"),
        KeyboardInterrupt(),
    ],
    ids=repr,
)
def test_another_error_is_not_out_of_memory_whatever_it_says(error: BaseException) -> None:
    assert not is_out_of_memory(error)


def test_memory_that_is_left_is_the_systems_without_a_container(tmp_path: Path) -> None:
    meminfo(tmp_path, 8 * GIB)
    assert available_memory(tmp_path) == 8 * GIB


@pytest.mark.parametrize(
    ("folder", "limit", "used", "droppable"),
    [
        ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
        ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ],
    ids=["version 2", "version 1"],
)
def test_a_containers_limit_counts_and_its_file_pages_are_free(
    tmp_path: Path, folder: str, limit: str, used: str, droppable: str
) -> None:
    meminfo(tmp_path, 8 * GIB)
    write(tmp_path, f"{folder}/{limit}", f"{4 * GIB}\n")
    write(tmp_path, f"{folder}/{used}", f"{3 * GIB}\n")
    assert available_memory(tmp_path) == GIB
    write(tmp_path, f"{folder}/memory.stat", f"anon 1\n{droppable} {GIB}\n")
    assert available_memory(tmp_path) == 2 * GIB


@pytest.mark.parametrize("limit", ["max", "9223372036854771712"])
def test_a_container_without_a_limit_changes_nothing(tmp_path: Path, limit: str) -> None:
    meminfo(tmp_path, 8 * GIB)
    write(tmp_path, "sys/fs/cgroup/memory.max", limit)
    write(tmp_path, "sys/fs/cgroup/memory.current", "123")
    assert available_memory(tmp_path) == 8 * GIB


def test_a_system_that_does_not_say_has_none(tmp_path: Path) -> None:
    assert available_memory(tmp_path) is None


def test_this_host_has_more_memory_in_all_than_is_left() -> None:
    total, left = total_memory(), available_memory()
    if total is None or left is None:
        pytest.skip("this system does not say how much memory it has")
    assert 0 < left <= total
