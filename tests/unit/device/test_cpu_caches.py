"""Cache sizes are read from the system's own tables, over made-up machines as well as this one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.device import cpu_caches as subject
from kernelmark.device.cpu_caches import ASSUMED_LAST_LEVEL, cpu_caches, parse_cpu_list, parse_size

KIB, MIB = 1 << 10, 1 << 20


def add_cache(root: Path, cpu: int, index: int, *, level: int, kind: str, size: str, shared: str) -> None:
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
    folder.mkdir(parents=True)
    for name, text in {"level": str(level), "type": kind, "size": size, "shared_cpu_list": shared}.items():
        (folder / name).write_text(f"{text}\n")


def add_core(root: Path, cpu: int, *, l3: str | None = None, l3_shared: str = "0-3") -> None:
    add_cache(root, cpu, 0, level=1, kind="Data", size="32K", shared=str(cpu))
    add_cache(root, cpu, 1, level=1, kind="Instruction", size="64K", shared=str(cpu))
    add_cache(root, cpu, 2, level=2, kind="Unified", size="1024K", shared=str(cpu))
    if l3:
        add_cache(root, cpu, 3, level=3, kind="Unified", size=l3, shared=l3_shared)


@given(st.integers(1, 10**6), st.sampled_from(["", "K", "M", "G"]), st.sampled_from(["", " ", "\n"]))
def test_a_size_is_read_with_its_unit(number: int, unit: str, end: str) -> None:
    factor = {"": 1, "K": KIB, "M": MIB, "G": 1 << 30}[unit]
    assert parse_size(f"{number}{unit}{end}") == number * factor


@given(st.text(max_size=8))
def test_text_that_is_no_size_is_none_and_no_error(text: str) -> None:
    size = parse_size(text)
    assert size is None or (size >= 0 and text.strip()[:1].isdecimal())


@pytest.mark.parametrize("text", ["", "K", "-1K", "1.5M", "12KB", "1 M", "٣K"])
def test_what_the_kernel_never_writes_is_no_size(text: str) -> None:
    assert parse_size(text) is None


@given(st.sets(st.integers(0, 300), max_size=40))
def test_a_list_of_processors_is_read_whole(cpus: set[int]) -> None:
    assert parse_cpu_list(",".join(map(str, sorted(cpus))) + "\n") == cpus


def test_ranges_are_read_with_both_ends_and_nonsense_is_left_out() -> None:
    assert parse_cpu_list("0-3,8,x,10-11") == {0, 1, 2, 3, 8, 10, 11}
    assert parse_cpu_list("") == frozenset()


def test_a_cache_that_several_processors_share_counts_once(tmp_path: Path) -> None:
    for cpu in range(4):
        add_core(tmp_path, cpu, l3="16384K")
    caches = cpu_caches(range(4), root=tmp_path)
    assert caches.by_level == {"L1d": 32 * KIB, "L2": MIB, "L3": 16 * MIB}
    assert caches.last_level == 16 * MIB
    assert caches.private_total == 4 * (32 * KIB + MIB)
    assert caches.source == "sysfs"


def test_the_last_levels_of_several_dies_add_up(tmp_path: Path) -> None:
    for cpu in range(4):
        add_core(tmp_path, cpu, l3="32768K", l3_shared="0-1" if cpu < 2 else "2-3")
    caches = cpu_caches(range(4), root=tmp_path)
    assert caches.by_level["L3"] == 32 * MIB
    assert caches.last_level == 64 * MIB


def test_a_process_that_is_bound_to_one_die_has_that_dies_caches_only(tmp_path: Path) -> None:
    for cpu in range(4):
        add_core(tmp_path, cpu, l3="32768K", l3_shared="0-1" if cpu < 2 else "2-3")
    caches = cpu_caches([2], root=tmp_path)
    assert caches.last_level == 32 * MIB
    assert caches.private_total == 32 * KIB + MIB


def test_without_a_third_level_the_second_is_the_last(tmp_path: Path) -> None:
    add_core(tmp_path, 0)
    caches = cpu_caches([0], root=tmp_path)
    assert (caches.last_level, caches.private_total) == (MIB, 32 * KIB)


def test_of_unlike_cores_a_level_has_the_larger_size_and_all_count(tmp_path: Path) -> None:
    add_cache(tmp_path, 0, 0, level=1, kind="Data", size="48K", shared="0")
    add_cache(tmp_path, 1, 0, level=1, kind="Data", size="32K", shared="1")
    add_cache(tmp_path, 0, 1, level=2, kind="Unified", size="2M", shared="0-1")
    add_cache(tmp_path, 1, 1, level=2, kind="Unified", size="2M", shared="0-1")
    caches = cpu_caches([0, 1], root=tmp_path)
    assert caches.by_level["L1d"] == 48 * KIB
    assert caches.private_total == 80 * KIB


def test_an_entry_without_a_size_is_passed_over(tmp_path: Path) -> None:
    add_core(tmp_path, 0, l3="8M")
    add_cache(tmp_path, 0, 9, level=4, kind="Unified", size="", shared="0")
    assert cpu_caches([0], root=tmp_path).last_level == 8 * MIB


def test_a_cache_that_does_not_say_who_shares_it_is_its_processors_own(tmp_path: Path) -> None:
    for cpu in (0, 1):
        add_cache(tmp_path, cpu, 0, level=2, kind="Unified", size="1M", shared="")
    assert cpu_caches([0, 1], root=tmp_path).last_level == 2 * MIB


def test_a_system_that_tells_nothing_gets_the_documented_assumption_and_says_so(tmp_path: Path) -> None:
    caches = cpu_caches([0, 1], root=tmp_path)
    assert caches.last_level == ASSUMED_LAST_LEVEL == 32 * MIB
    assert caches.by_level == {}
    assert caches.source.startswith("assumed 32 MiB")


def test_numbers_without_sharing_take_the_last_level_for_shared() -> None:
    sizes = {1: 32 * KIB, 2: MIB, 3: 8 * MIB, 4: 0}
    keys = {"L1d": 1, "L2": 2, "L3": 3, "L4": 4}
    caches = subject._from_numbers(sizes.__getitem__, keys, "the C library", 4)
    assert caches is not None
    assert caches.by_level == {"L1d": 32 * KIB, "L2": MIB, "L3": 8 * MIB}
    assert caches.last_level == 8 * MIB
    assert caches.private_total == 4 * (32 * KIB + MIB)


def test_numbers_that_are_all_zero_are_no_answer() -> None:
    assert subject._from_numbers(lambda key: 0, {"L1d": 1}, "the C library", 1) is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's numbers are Linux's")
def test_the_c_library_and_the_systems_tables_agree_here_where_both_speak() -> None:
    tables = cpu_caches([0])
    numbers = subject._from_numbers(subject._ask_glibc, subject._GLIBC_SIZES, "the C library", 1)
    if tables.source != "sysfs" or numbers is None:
        pytest.skip(f"only one of them speaks here: {tables.source}")
    # On some AMD processors the C library counts the last level once for each core that shares it.
    last = max(tables.by_level)
    assert numbers.by_level[last] % tables.by_level[last] == 0
    assert {k: v for k, v in numbers.by_level.items() if k != last} == {
        k: v for k, v in tables.by_level.items() if k != last
    }


def test_an_unknown_number_is_no_error() -> None:
    assert subject._ask_glibc(10**6) == 0
