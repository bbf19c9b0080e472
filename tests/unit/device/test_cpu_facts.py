"""What a machine says of its processor is read from its files; what it does not say stays empty."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernelmark.device.cpu_facts import (
    available_cpus,
    busy_seconds,
    clock_mhz,
    cpu_flags,
    cpu_name,
    cpu_settings,
    physical_cores,
)

X86 = "processor\t: 0\nmodel name\t: Example(R)  CPU   X1\ncpu MHz\t\t: 2599.998\nflags\t\t: fpu sse {more}\n"


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_the_name_is_the_kernels_with_its_spaces_put_in_order(tmp_path: Path) -> None:
    write(tmp_path, "proc/cpuinfo", X86.format(more=""))
    assert cpu_name(tmp_path) == "Example(R) CPU X1"


def test_an_arm_processor_is_named_by_its_numbers(tmp_path: Path) -> None:
    write(tmp_path, "proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n")
    assert cpu_name(tmp_path) == "Arm implementer 0x41 part 0xd40"


def test_a_machine_without_the_file_still_has_a_name(tmp_path: Path) -> None:
    assert cpu_name(tmp_path)


def test_the_clock_is_the_mean_of_what_the_frequency_driver_says(tmp_path: Path) -> None:
    write(tmp_path, "proc/cpuinfo", X86.format(more=""))
    for cpu, khz in enumerate((2_000_000, 3_000_000)):
        write(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq", f"{khz}\n")
    assert clock_mhz([0, 1], tmp_path) == 2500.0


def test_without_a_frequency_driver_the_clock_is_the_one_in_cpuinfo(tmp_path: Path) -> None:
    write(tmp_path, "proc/cpuinfo", X86.format(more=""))
    assert clock_mhz([0], tmp_path) == 2599.998


def test_a_clock_that_nobody_tells_is_none(tmp_path: Path) -> None:
    assert clock_mhz([0], tmp_path) is None


def test_only_the_start_of_a_long_cpuinfo_is_read(tmp_path: Path) -> None:
    write(tmp_path, "proc/cpuinfo", "x" * 10_000 + "\n" + X86.format(more=""))
    assert clock_mhz([0], tmp_path) is None


def test_settings_that_are_there_are_told_and_others_left_out(tmp_path: Path) -> None:
    write(tmp_path, "proc/cpuinfo", X86.format(more="avx2"))
    write(tmp_path, "sys/devices/system/cpu/cpu3/cpufreq/scaling_governor", "performance\n")
    write(tmp_path, "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    assert cpu_settings(3, tmp_path) == {"governor": "performance", "transparent_hugepages": "madvise"}


def test_a_virtual_machine_is_told_as_one(tmp_path: Path) -> None:
    write(tmp_path, "proc/cpuinfo", X86.format(more="hypervisor avx2"))
    assert cpu_settings(0, tmp_path)["virtual_machine"].startswith("yes")


def test_worked_time_counts_everybodys_work_and_what_a_hypervisor_took(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    columns = [ticks, 0, 2 * ticks, 900 * ticks, 50 * ticks, 0, 0, 3 * ticks, 7 * ticks, 0]
    row = " ".join(map(str, columns))
    write(tmp_path, "proc/stat", f"cpu  {row}\ncpu0 {row}\ncpu1 {row}\nintr 1 2 3\n")
    assert busy_seconds([0], tmp_path) == 6.0
    assert busy_seconds([0, 1], tmp_path) == 12.0


@pytest.mark.parametrize("text", ["", "cpu  1 2 3 4\n", "cpu1 1 2 3 4\n"])
def test_worked_time_is_none_where_a_processor_is_not_listed(tmp_path: Path, text: str) -> None:
    write(tmp_path, "proc/stat", text)
    assert busy_seconds([0], tmp_path) is None
    assert busy_seconds([], tmp_path) is None


def test_this_process_may_run_somewhere() -> None:
    cpus = available_cpus()
    assert cpus == tuple(sorted(set(cpus)))
    assert len(cpus) >= 1


def test_instruction_sets_are_the_kernels_words(tmp_path: Path) -> None:
    write(tmp_path, "proc/cpuinfo", X86.format(more="avx2 fma"))
    assert cpu_flags(tmp_path) == {"fpu", "sse", "avx2", "fma"}
    write(tmp_path, "proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd sve\n")
    assert cpu_flags(tmp_path) == {"fp", "asimd", "sve"}


def test_a_machine_that_lists_no_instruction_sets_has_none(tmp_path: Path) -> None:
    assert cpu_flags(tmp_path) == frozenset()


def test_cores_are_counted_once_and_unknown_ones_each(tmp_path: Path) -> None:
    for cpu, siblings in ((0, "0,2"), (1, "1"), (2, "0,2")):
        write(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{siblings}\n")
    assert physical_cores((0, 1, 2), tmp_path) == 2
    assert physical_cores((0, 5, 6), tmp_path) == 3
