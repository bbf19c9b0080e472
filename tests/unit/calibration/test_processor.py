"""The processor's own multiply-add loops, built and run for real, and what is said where they cannot be."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from kernelmark.calibration import processor
from kernelmark.calibration.processor import Loop, c_compiler, multiply_add_rates
from kernelmark.roofline import Rate


@pytest.mark.skipif(c_compiler() is None, reason="no C compiler")
def test_the_loops_are_built_and_run_on_this_processor() -> None:
    found = multiply_add_rates(1, 0.01)
    assert {Rate.FLOAT64, Rate.FLOAT32, Rate.FLOAT16, Rate.BFLOAT16} <= set(found)
    assert all(loop.per_s > 1e8 for loop in found.values())
    assert found[Rate.FLOAT32].instruction.endswith("-bit")
    assert found[Rate.BFLOAT16].per_s >= found[Rate.FLOAT32].per_s


@pytest.mark.skipif(c_compiler() is None, reason="no C compiler")
def test_as_many_threads_run_as_are_asked_for_also_more_than_there_are_processors() -> None:
    assert multiply_add_rates(5, 0.001)[Rate.FLOAT64].per_s > 1e8


def test_without_a_compiler_that_builds_them_there_are_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", str(tmp_path / "none"))
    assert c_compiler() is None
    assert multiply_add_rates(1, 0.01) == {}
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    assert c_compiler() == str(broken)
    assert multiply_add_rates(1, 0.01) == {}


def test_the_fastest_loop_of_a_dtype_counts_and_a_narrow_number_can_be_multiplied_as_float32() -> None:
    found = processor._best_of("float32 256-bit 3e9\nbfloat16 vdpbf16ps 1e9\nbfloat16 tdpbf16ps 9e9\n")
    assert found[Rate.BFLOAT16] == Loop(9e9, "tdpbf16ps")
    assert found[Rate.FLOAT16] == Loop(3e9, "256-bit as float32")
    assert processor._best_of("") == {}


def test_what_a_program_wrote_before_it_died_counts() -> None:
    assert processor._output(["sh", "-c", "echo float64 a 1; kill -ILL $$"]) == "float64 a 1\n"
    assert processor._output(["sh", "-c", "exit 1"]) is None


@pytest.mark.skipif(c_compiler() is None or platform.machine() != "x86_64", reason="no C compiler for x86-64")
@pytest.mark.parametrize("processor_", ["x86-64", "haswell", "skylake-avx512", "sapphirerapids"])
def test_the_loops_build_for_processors_that_are_not_here(processor_: str) -> None:
    """Matrix units, for one, are on few of the machines that tests run on."""
    compiler = c_compiler()
    assert compiler is not None
    flags = ["-O1", f"-march={processor_}", "-Wall", "-Wextra", "-Werror", "-pthread", "-fsyntax-only"]
    done = subprocess.run([compiler, *flags, processor._SOURCE], capture_output=True, text=True, check=False)
    if "for '-march=" in done.stderr or "unknown target CPU" in done.stderr:
        pytest.skip(f"{compiler} does not know {processor_}")
    assert done.returncode == 0, done.stderr
