"""Targets are read from what processors say of themselves, and from what a user asks for instead."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernelmark.errors import UnavailableError, UsageError
from kernelmark.probe import Probe
from torchsched import targets
from torchsched.targets import Feature, Target, detect, override, require_here

RECORDED = Path(__file__).resolve().parents[2] / "data" / "cpuinfo"


def machine(tmp_path: Path, cpuinfo: str) -> Path:
    (tmp_path / "proc").mkdir()
    shutil.copy(RECORDED / f"{cpuinfo}.txt", tmp_path / "proc" / "cpuinfo")
    return tmp_path


def core(root: Path, cpu: int, siblings: str) -> None:
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
    folder.mkdir(parents=True)
    (folder / "thread_siblings_list").write_text(f"{siblings}\n")


@pytest.mark.spec("L7")
@pytest.mark.parametrize(
    ("cpuinfo", "reported", "name", "preference", "vector_bits"),
    [
        ("zen4", "x86_64", "x86_64", ("avx512_bf16", "avx512", "avx2"), 512),
        ("sapphire_rapids", "x86_64", "x86_64", ("amx", "avx512_bf16", "avx512", "avx2"), 512),
        ("skylake_server", "AMD64", "x86_64", ("avx512", "avx2"), 512),
        ("knights_landing", "x86_64", "x86_64", ("avx2",), 256),  # avx512f alone is not the family
        ("haswell", "x86_64", "x86_64", ("avx2",), 256),
        ("neoverse_v1", "aarch64", "aarch64", ("sve", "neon"), 128),
        ("neoverse_n1", "arm64", "aarch64", ("neon",), 128),
    ],
)
def test_a_target_is_what_the_processor_lists(
    tmp_path: Path, cpuinfo: str, reported: str, name: str, preference: tuple[str, ...], vector_bits: int
) -> None:
    found = detect(machine=reported, root=machine(tmp_path, cpuinfo))
    assert found.name == name
    assert found.preference == preference
    assert found.vector_bits == vector_bits


def test_the_length_of_scalable_vectors_is_what_the_kernel_sets(tmp_path: Path) -> None:
    root = machine(tmp_path, "neoverse_v1")
    (root / "proc/sys/abi").mkdir(parents=True)
    (root / "proc/sys/abi/sve_default_vector_length").write_text("32\n")
    assert detect(machine="aarch64", root=root).vector_bits == 256


def test_a_machine_that_lists_nothing_has_the_base_of_its_architecture(tmp_path: Path) -> None:
    found = detect(machine="x86_64", root=tmp_path)
    assert not found.features
    assert found.vector_bits == 128
    assert detect(machine="arm64", root=tmp_path).preference == (Feature.NEON,)


def test_an_architecture_without_schedules_keeps_its_own_name(tmp_path: Path) -> None:
    found = detect(machine="riscv64", root=tmp_path)
    assert found.name == "riscv64"
    assert not found.features


def test_this_machine_is_found_out() -> None:
    found = detect()
    assert found.name
    assert found.threads >= 1
    assert found.vector_bits >= 128
    require_here(found)


def test_hardware_threads_of_one_core_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(targets, "available_cpus", lambda: (0, 1, 2, 3))
    for cpu, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        core(tmp_path, cpu, siblings)
    assert detect(root=tmp_path).threads == 2


def test_the_environment_says_how_many_threads_and_a_caller_overrules_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert detect(root=tmp_path).threads == 3
    assert detect(root=tmp_path, threads=5).threads == 5
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert detect(root=tmp_path).threads >= 1


@pytest.mark.parametrize("threads", [0, -1, True, 2.0])
def test_a_number_of_threads_that_there_cannot_be_is_refused(threads: object) -> None:
    with pytest.raises(UsageError, match="whole number of at least 1"):
        detect(threads=threads)  # type: ignore[arg-type]


def test_without_an_openmp_runtime_the_code_uses_one_thread_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    absent = Probe(False, "no OpenMP runtime of LLVM's is installed (pip install 'kernelmark[mlir]')")
    monkeypatch.setattr(targets, "find_openmp", lambda: absent)
    found = detect(threads=4)
    assert not found.parallel
    assert found.code_threads == 1
    assert found.notes[0] == f"one thread rather than 4: {absent.detail}"
    assert absent.detail not in "".join(detect(threads=1).notes)


def test_with_a_runtime_the_code_uses_the_threads() -> None:
    found = Target("x86_64", threads=4, openmp="libomp.so")
    assert found.parallel
    assert found.code_threads == 4


@pytest.mark.parametrize(
    ("target", "notes"),
    [
        (
            Target("x86_64", frozenset({Feature.AVX512, Feature.AVX2}), 2, 512, openmp="libomp.so", cores=2),
            (),
        ),
        (
            Target("x86_64", frozenset({Feature.AVX512}), 1, 512, cores=1),
            ("one thread: this process may use one core",),
        ),
        (
            Target("x86_64", frozenset({Feature.AVX512}), 1, 512, cores=8),
            ("one thread, as was asked for, of 8 cores",),
        ),
        (
            Target("x86_64", frozenset({Feature.AVX2}), 2, 256, openmp="libomp.so", cores=2),
            ("vectors of 256 bits rather than 512: the target is without avx512",),
        ),
        (Target("aarch64", frozenset({Feature.NEON}), 2, 128, openmp="libomp.so", cores=2), ()),
    ],
)
def test_a_slower_schedule_says_why_it_is_slower(target: Target, notes: tuple[str, ...]) -> None:
    assert target.notes == notes


@pytest.mark.spec("L7")
@pytest.mark.parametrize(
    ("text", "preference", "vector_bits"),
    [
        ("avx512", ("avx512", "avx2"), 512),
        ("avx512f", ("avx512", "avx2"), 512),
        ("AVX512VNNI", ("avx512", "avx2"), 512),
        ("avx512-bf16", ("avx512_bf16", "avx512", "avx2"), 512),
        ("amx", ("amx", "avx512_bf16", "avx512", "avx2"), 512),
        ("amx_tile", ("amx", "avx512_bf16", "avx512", "avx2"), 512),
        ("avx2", ("avx2",), 256),
        ("none", (), 128),
    ],
)
def test_a_feature_is_named_by_its_family_or_one_of_its_instruction_sets(
    text: str, preference: tuple[str, ...], vector_bits: int
) -> None:
    found = override(Target("x86_64"), feature=text)
    assert found.preference == preference
    assert found.vector_bits == vector_bits


@pytest.mark.spec("L7")
def test_another_architecture_has_only_the_feature_that_is_named() -> None:
    here = Target("x86_64", frozenset({Feature.AVX512, Feature.AVX2}), threads=2, vector_bits=512)
    arm = override(here, name="arm64")
    assert (arm.name, arm.preference, arm.vector_bits, arm.threads) == ("aarch64", (), 128, 2)
    assert override(here, name="aarch64", feature="sve").preference == (Feature.SVE, Feature.NEON)
    assert override(here, name="x86_64") == here


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"name": "x86"}, "target 'x86' is not known; did you mean 'x86_64'"),
        ({"feature": "avx51"}, "feature 'avx51' is not known; did you mean 'avx512'"),
        (
            {"feature": "sve"},
            "feature 'sve' belongs to aarch64, and the target is x86_64; features of x86_64:",
        ),
        ({"threads": 0}, "threads=0: give a whole number"),
    ],
)
def test_a_name_that_there_is_none_of_is_refused_with_those_there_are(
    asked: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        override(Target("x86_64"), **asked)  # type: ignore[arg-type]


def test_code_for_another_machine_is_not_made() -> None:
    here = Target("x86_64", frozenset({Feature.AVX2}))
    require_here(here, here)
    with pytest.raises(UnavailableError, match="target aarch64: this machine is x86_64"):
        require_here(Target("aarch64"), here)
    with pytest.raises(UnavailableError, match="feature amx: this processor does not have it; it has avx2"):
        require_here(override(here, feature="amx"), here)


def test_a_target_prints_as_one_line() -> None:
    found = Target("x86_64", frozenset({Feature.AVX2}), threads=2, vector_bits=256, openmp="libomp.so")
    assert str(found) == "x86_64 avx2, vectors of 256 bits, 2 threads"
    assert str(Target("riscv64")) == "riscv64 no vector features known, vectors of 128 bits, 1 thread"
