"""Libraries: found beside their source, refused when stale, built on request and then kept by content."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmark.errors import UnavailableError, UsageError
from kernelmark.kernelfile.building import compiler_for, find_library
from kernelmark.kernelfile.request import Request
from kernelmark.report.notes import note_text

SOURCE = '#include "value.h"\nextern "C" void solve(float* out) { out[0] = VALUE; }\n'

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which is not installed")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc, which is not installed")


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Request]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)

    def asking(name: str = "k.cpp", text: str = SOURCE, **options) -> Request:
        (tmp_path / name).write_text(text)
        (tmp_path / "value.h").write_text("#define VALUE 1.0f\n")
        (tmp_path / "ref.py").write_text("")
        return Request(tmp_path / name, tmp_path / "ref.py", tmp_path / "out", **options)

    return asking


@pytest.mark.spec("K6")
def test_a_missing_library_ends_with_the_line_to_run(ask) -> None:
    with pytest.raises(UnavailableError) as raised:
        find_library(ask("k.cu", arch="sm_90"))
    folder = ask().solution.parent
    line = f"nvcc -shared -std=c++17 -arch=sm_90 -O3 -Xcompiler -fPIC -o {folder}/k.so {folder}/k.cu"
    assert line in str(raised.value)


@pytest.mark.spec("K6")
def test_a_library_older_than_its_source_is_refused(ask) -> None:
    asked = ask()
    library = asked.solution.with_suffix(".so")
    library.touch()
    os.utime(library, (1, 1))
    with pytest.raises(UnavailableError, match="is older than"):
        find_library(asked)
    os.utime(asked.solution, (1, 1))
    assert find_library(asked).path == library


def test_compile_flags_reach_the_compiler(ask) -> None:
    asked = ask("k.cu", arch="sm_80", compile_flags=("-Icutlass/include",))
    assert "-Icutlass/include" in compiler_for(asked).options


def test_cutlass_is_compiled_with_the_headers_of_its_package_for_this_architecture_alone(
    ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")  # no driver to ask: the default
    source = tmp_path / "site" / "cutlass_library" / "source"
    for folder in (source / "include", source / "tools" / "util" / "include"):
        folder.mkdir(parents=True)
    (tmp_path / "site" / "cutlass_library" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "site")
    asked = ask("k.cu", implementation="cutlass", compile_flags=("-Imine",))
    options = compiler_for(asked).options
    assert "-arch=sm_90a" in options
    assert "--expt-relaxed-constexpr" in options
    own, package, tools = (each for each in options if each.startswith("-I"))
    assert (own, package) == ("-Imine", f"-I{source / 'include'}")
    assert tools == f"-I{source / 'tools' / 'util' / 'include'}"
    assert "-arch=sm_100" in compiler_for(ask("k.cu", implementation="cutlass", arch="sm_100")).options
    assert "-arch=sm_90" in compiler_for(ask("k.cu")).options


def test_without_cutlass_s_headers_the_message_says_where_they_come_from(
    ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"k\.so(.|\n)*once nvidia-cutlass is installed"):
        find_library(ask("k.cu", implementation="cutlass"))


@needs_nvcc
def test_a_header_of_cutlass_that_is_not_found_is_a_lack_of_this_machine(
    ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    text = '#include <cutlass/no_such_file.h>\nextern "C" void solve(float* out) {}\n'
    with pytest.raises(UnavailableError, match=r"no_such_file(.|\n)*nvidia-cutlass"):
        find_library(ask("k.cu", text, implementation="cutlass", arch="sm_90a", compile=True))
    with pytest.raises(UsageError, match="no_such_file"):
        find_library(ask("k.cu", text, arch="sm_90", compile=True))


def test_the_user_s_own_compiler_is_used(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "ccache my-c++")
    assert compiler_for(ask()).program == "ccache"
    assert compiler_for(ask()).options[0] == "my-c++"


@needs_compiler
def test_a_built_library_is_kept_until_source_header_or_flags_change(ask) -> None:
    first = find_library(ask(compile=True)).path
    built = first.stat().st_mtime_ns
    assert find_library(ask(compile=True)).path == first
    assert first.stat().st_mtime_ns == built
    assert find_library(ask(compile=True, compile_flags=("-DOTHER",))).path != first
    assert find_library(ask(text=SOURCE + "// more\nint other;", compile=True)).path != first
    asked = ask(compile=True)
    (asked.solution.parent / "value.h").write_text("#define VALUE 2.0f\n")
    assert find_library(asked).path != first


PARALLEL = """
extern "C" void solve(float* out) {
    #pragma omp parallel for
    for (int i = 0; i < 4; ++i) out[i] = 1;
}
"""


@needs_compiler
@pytest.mark.parametrize(
    ("text", "flags", "ignored"),
    [
        (PARALLEL, (), True),
        (PARALLEL, ("-fopenmp",), False),
        (SOURCE + "// #pragma omp parallel\n", (), False),
    ],
)
def test_pragmas_of_openmp_that_had_no_effect_are_told(
    ask, text: str, flags: tuple[str, ...], ignored
) -> None:
    library = find_library(ask(text=text, compile=True, compile_flags=flags))
    assert any("-fopenmp" in note_text(note) for note in library.notes) is ignored
    assert library.built_with.startswith("g++ -shared") or "-shared" in library.built_with
    assert all(flag in library.built_with for flag in flags)


@needs_compiler
def test_what_does_not_compile_is_an_error_of_use_with_the_compiler_s_words(ask) -> None:
    with pytest.raises(UsageError, match=r"does not compile(.|\n)*error"):
        find_library(ask(text='extern "C" void solve(float* out) { nonsense; }', compile=True))


def test_without_a_compiler_the_line_is_told(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnavailableError, match="there is no nvcc here"):
        find_library(ask("k.cu", arch="sm_90", compile=True))
