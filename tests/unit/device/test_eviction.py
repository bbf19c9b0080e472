"""A flush reads as much as the caches hold, from pages of its own, and never writes again."""

from __future__ import annotations

import ctypes
import os
import signal
import warnings
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.device import CacheSizes
from kernelmark.device.eviction import HostReadFlusher, ReadFlusher, cpu_eviction_bytes, gpu_eviction_bytes

MIB = 1 << 20
sizes = st.integers(0, 2**32)


@given(sizes, sizes)
def test_a_cpu_is_flushed_by_at_least_all_its_caches(last: int, private: int) -> None:
    needed = cpu_eviction_bytes(CacheSizes({}, last_level=last, private_total=private))
    assert needed >= last + private
    assert needed >= min(2 * last, 256 * MIB)


@pytest.mark.parametrize(
    ("last", "private", "needed"),
    [
        (8 * MIB, MIB, 16 * MIB),  # an ordinary cache: twice
        (128 * MIB, MIB, 256 * MIB),
        (200 * MIB, MIB, 256 * MIB),  # twice would be more than is worth its time
        (480 * MIB, 4 * MIB, 484 * MIB),  # a server's: once
        (MIB, 4 * MIB, 5 * MIB),  # more private than shared
    ],
)
def test_the_size_follows_the_rule(last: int, private: int, needed: int) -> None:
    assert cpu_eviction_bytes(CacheSizes({}, last_level=last, private_total=private)) == needed


def test_a_gpu_is_flushed_by_twice_its_l2() -> None:
    assert gpu_eviction_bytes(60 * MIB) == 120 * MIB


def test_an_amd_gpu_is_flushed_past_the_cache_that_it_does_not_tell_of() -> None:
    assert gpu_eviction_bytes(4 * MIB, hip=True) == 512 * MIB
    assert gpu_eviction_bytes(300 * MIB, hip=True) == 600 * MIB


def test_an_accelerator_that_tells_nothing_is_flushed_by_a_documented_size() -> None:
    assert gpu_eviction_bytes(0) == gpu_eviction_bytes(0, hip=True) == 512 * MIB


@given(st.integers(1, 3 * MIB))
def test_the_size_is_rounded_up_to_whole_rows(size: int) -> None:
    flusher = ReadFlusher("cpu", size)
    assert size <= flusher.size_bytes < size + 8192
    assert flusher._rows.nbytes == flusher.size_bytes


@pytest.mark.spec("T29")
def test_a_flush_reads_all_of_the_buffer_and_writes_none_of_it() -> None:
    flusher = ReadFlusher("cpu", MIB)
    before = flusher._rows._version
    flusher()
    assert int(flusher._sums.sum()) == flusher.size_bytes // 8  # each element is 1 and was read once
    assert flusher._rows._version == before


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc/self/statm")
def test_the_buffer_has_pages_of_its_own_and_not_the_page_of_zeros() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    # what earlier tests freed goes back first, or the buffer would take it without the process growing
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    before = resident()
    flusher = ReadFlusher("cpu", 64 * MIB)
    assert resident() - before > 0.9 * flusher.size_bytes


def test_what_has_to_happen_first_happens_before_the_reading() -> None:
    seen: list[int] = []
    flusher = ReadFlusher("cpu", MIB, before=lambda: seen.append(int(flusher._sums.sum())))
    flusher._sums.zero_()
    flusher()
    assert seen == [0]
    assert int(flusher._sums.sum()) > 0


def test_a_flusher_made_in_inference_mode_works_outside_it() -> None:
    with torch.inference_mode():
        flusher = ReadFlusher("cpu", MIB)
        flusher()
    flusher()


def test_a_flusher_stays_where_it_belongs_under_another_default_device() -> None:
    with torch.device("meta"):
        flusher = ReadFlusher("cpu", MIB)
    assert flusher._rows.device.type == "cpu"


@given(st.integers(1, 3 * MIB), st.integers(1, 5))
def test_a_cpu_reads_whole_pages_on_each_thread(size: int, threads: int) -> None:
    flusher = HostReadFlusher(size, range(threads))
    assert size <= flusher.size_bytes < size + threads * 4096
    starts = [start for start, _, _ in flusher._parts]
    assert len({length for _, _, length in flusher._parts}) == 1
    assert [b - a for a, b in pairwise(starts)] == [flusher.size_bytes // threads] * (threads - 1)


@pytest.mark.spec("T29")
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_cpus_flush_looks_through_every_part_in_vain(threads: int) -> None:
    read: list[int] = []
    flusher = HostReadFlusher(MIB, [0] * threads, before=read.clear)
    search = flusher._search

    def look(*part: int) -> object:
        read.append(part[0])
        found.append(search(*part))
        return found[-1]

    found: list[object] = []
    flusher._search = look
    read.append(0)  # which what comes before takes out
    flusher()
    assert sorted(read) == [start for start, _, _ in flusher._parts]
    assert found == [None] * threads  # read to the end, since the byte is nowhere


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_child_flushes_with_threads_of_its_own() -> None:
    flusher = HostReadFlusher(MIB, [0, 0])
    flusher()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a process with threads that forks
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        flusher()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
