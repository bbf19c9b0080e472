"""One finding for each thing that a way in needs, with what it is for and how it is had."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmark.doctor import machine as reading
from kernelmark.doctor.machine import Machine, Severity
from kernelmark.doctor.tools import ways_in
from kernelmark.probe import Probe

WAYS = ["C++ compiler", "OpenMP", "nvcc", "pytest", "tree_sitter", "torch_mlir", "einops"]


def test_each_way_in_is_well_where_all_is_there(gpu_machine: Machine) -> None:
    found = list(ways_in(replace(gpu_machine, compiler="/opt/bin/g++", openmp=True)))
    assert [finding.what for finding in found] == WAYS
    assert {finding.severity for finding in found} == {Severity.OK}


def test_what_is_missing_is_a_note_that_says_what_it_is_for_and_how_it_is_had(cpu_machine: Machine) -> None:
    bare = replace(cpu_machine, module=lambda name: Probe(False, "not installed"), compiler="g++")
    found = {finding.what: finding for finding in ways_in(bare)}
    assert list(found) == WAYS
    notes = {what for what, finding in found.items() if finding.severity is Severity.NOTE}
    assert notes == set(WAYS) - {"C++ compiler"}
    assert found["torch_mlir"].fix == "pip install 'kernelmark[mlir]'"
    assert "kernel files" in found["tree_sitter"].found
    (without, *_) = ways_in(replace(bare, compiler=None))
    assert (without.severity, without.fix) == (Severity.NOTE, "install g++ or clang++, or name one in CXX")


def test_every_extra_that_a_fix_names_exists(cpu_machine: Machine) -> None:
    bare = replace(cpu_machine, module=lambda name: Probe(False, "not installed"))
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    fixes = [finding.fix for finding in ways_in(bare) if "kernelmark[" in finding.fix]
    assert len(fixes) == 4
    assert {fix.partition("[")[2].partition("]")[0] for fix in fixes} <= set(project["optional-dependencies"])


@pytest.mark.skipif(reading._cpp_compiler() is None, reason="no C++ compiler")
def test_openmp_is_tried_with_the_compiler_that_is_there(tmp_path: Path) -> None:
    compiler = reading._cpp_compiler()
    assert compiler is not None
    assert isinstance(reading._builds_openmp(compiler), bool)
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert not reading._builds_openmp(str(broken))


def test_the_compiler_is_the_one_that_cxx_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++ -O3")
    assert reading._cpp_compiler() is None
