"""Compiled libraries, run on CPU pointers in this process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmark.errors import (
    CrashedError,
    OutOfBoundsError,
    UnavailableError,
    UsageError,
    VerificationError,
)
from kernelmark.kernelfile import KernelRun, Request, benchmark
from kernelmark.records import Check
from kernelmark.report.notes import note_text

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which is not installed")

SCALE = 'extern "C" void solve(const float* x, float* out, int n) { for (int i = 0; i < n; ++i) out[i] = 2 * x[i]; }'


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def run(write, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., KernelRun]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    quick = {"num_trials": 4, "num_warmup": 0, "cache": "warm", "isolation": False, "compile": True}
    # -O0 compiles fastest
    quick |= {"compile_flags": ("-O0",)}

    def running(source: str, reference: str, **options) -> KernelRun:
        values = {
            name: options.pop(name) for name in tuple(options) if name in ("n", "M", "N", "K", "s", "flag")
        }
        paths = (write("k.cpp", source), write("ref.py", reference))
        return benchmark(Request(*paths, tmp_path / "out", values=values, **{**quick, **options}))

    return running


TWICE = "def reference(x, out, **kwargs):\n    return x * 2\n"


def test_a_library_is_checked_and_timed_on_inferred_buffers(run) -> None:
    found = run(SCALE, TWICE, n=1000)
    assert [row.check for row in found.rows] == [Check.VERIFIED] * 2
    assert found.rows[0].timing is not None
    assert found.facts["buffers"] == {"x": "1000", "out": "1000"}
    assert "inferred: 1000 elements from n=1000" in found.facts["buffers from"]


def test_scalars_of_every_kind_arrive(run) -> None:
    source = """
extern "C" void solve(const double* x, double* out, int n, double s, bool flag) {
    for (int i = 0; i < n; ++i) out[i] = flag ? s * x[i] : 0;
}"""
    reference = "def reference(x, out, s, flag, **kwargs):\n    return x * s if flag else x * 0\n"
    assert run(source, reference, n=8, s="2.5", flag="true").rows[0].check is Check.VERIFIED


def test_what_built_the_library_is_in_the_report_and_pragmas_without_effect_are_a_note(run) -> None:
    source = SCALE.replace("for (", "\n#pragma omp parallel for\nfor (")
    found = run(source, TWICE, n=64)
    assert " -O0 -o " in found.told["header"]["built with"]
    assert any("#pragma omp had no effect" in note for note in found.told["variants"]["solution"]["notes"])


@pytest.mark.spec("K2")
@pytest.mark.parametrize("reads", ['kwargs["M"]', 'kwargs.get("M", 0)', "scale(**kwargs)"])
def test_a_value_that_only_the_reference_takes_reaches_its_open_arguments(run, reads: str) -> None:
    reference = f"def scale(M, **kwargs):\n    return M\ndef reference(**kwargs):\n    return kwargs['x'] * ({reads})\n"
    assert run(SCALE, reference, n=8, M=2).rows[0].check is Check.VERIFIED
    with pytest.raises(VerificationError):
        run(SCALE, reference, n=8, M=3)


def test_a_value_that_only_shapes_takes_reaches_it(run) -> None:
    shaped = f"def shapes(n, M):\n    return {{'x': (M, n // M), 'out': (M, n // M)}}\n{TWICE}"
    assert run(SCALE, shaped, n=8, M=2).facts["buffers"] == {"x": "2×4", "out": "2×4"}


def test_a_buffer_takes_no_value_from_the_command_line(run) -> None:
    with pytest.raises(UsageError, match="s is a buffer"):
        run(
            SCALE.replace("* x,", "* s,").replace("x[i]", "s[i]"),
            "def reference(s, out, **kwargs):\n    return s * 2\n",
            n=8,
            s=3,
        )


def test_integers_and_bytes_are_exact(run) -> None:
    source = """
#include <cstdint>
extern "C" void solve(const std::uint8_t* x, std::int64_t* out, int n) {
    for (int i = 0; i < n; ++i) out[i] = 3 * x[i];
}"""
    reference = "import torch\ndef reference(x, out, **kwargs):\n    return x.to(torch.int64) * 3\n"
    assert run(source, reference, n=64).rows[0].check is Check.VERIFIED
    with pytest.raises(VerificationError):
        run(source.replace("3 *", "4 *"), reference, n=64)


def test_a_flat_buffer_is_compared_in_the_shape_of_the_answer(run) -> None:
    reference = "def reference(x, out, M, N, **kwargs):\n    return x.view(M, N) * 2\n"
    source = SCALE.replace("int n", "int M, int N").replace("< n", "< M * N")
    assert run(source, reference, M=4, N=6).rows[0].outputs[0].shape == (4, 6)


def test_a_reference_that_does_not_fit_the_inferred_sizes_is_refused_before_the_solution_runs(run) -> None:
    source = SCALE.replace("int n", "int M, int N, int K").replace("< n", "< M * N * K")
    reference = "def reference(x, out, M, N, K, **kwargs):\n    return x.view(M, N, K) * 2\n"
    with pytest.raises(UsageError, match=r"inferred(.|\n)*shapes\(\*\*dims\)"):
        run(source, reference, M=4, N=5, K=6)
    shaped = f"def shapes(M, N, K):\n    return dict.fromkeys(('x', 'out'), (M, N, K))\n{reference}"
    assert run(source, shaped, M=4, N=5, K=6).outcome == "measured"


def test_an_answer_larger_than_its_buffer_is_refused(run) -> None:
    reference = "import torch\ndef reference(x, out, **kwargs):\n    return torch.cat([x, x])\n"
    with pytest.raises(UsageError, match="more than the solution's buffer"):
        run(SCALE, reference, n=8)


def test_part_of_a_larger_buffer_is_compared_and_that_is_said(run) -> None:
    reference = "def reference(x, out, **kwargs):\n    return x[:4] * 2\n"
    found = run(SCALE, reference, n=8)
    assert "out: the first 4 of 8 elements are the reference's answer" in map(note_text, found.rows[0].notes)


@pytest.mark.parametrize(
    ("values", "told"),
    [({}, "takes n"), ({"n": "1.5"}, "whole number"), ({"n": 2**31}, "from -2147483648"),
     ({"n": 4, "M": 3}, "neither an option nor a parameter")],
)  # fmt: skip
def test_scalars_that_do_not_fit_are_refused_before_anything_is_built(run, values, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        run(SCALE, TWICE, **values)


def test_a_solution_that_does_nothing_fails(run) -> None:
    with pytest.raises(VerificationError, match="solution"):
        run('extern "C" void solve(const float* x, float* out, int n) {}', TWICE, n=64)


@pytest.mark.parametrize(
    ("beside", "told"),
    [
        ("out[n] = 1;", "4 bytes after the end of out, the first in the place of element 64"),
        ("out[n + 1] = 1;", "4 bytes after the end of out, the first in the place of element 65"),
        ("out[-2] = 1;", "4 bytes before the start of out, the nearest 5 bytes before it"),
        ("const_cast<float*>(x)[n] = 1;", "4 bytes after the end of x"),
        ("if (++calls > 8) out[n] = 1;", "after the end of out"),
    ],
)
def test_what_is_written_beside_a_buffer_is_found_with_its_place(run, beside: str, told: str) -> None:
    source = f"""
static int calls = 0;
extern "C" void solve(const float* x, float* out, int n) {{
    for (int i = 0; i < n; ++i) out[i] = 2 * x[i];
    {beside}
}}"""
    with pytest.raises(OutOfBoundsError, match=f"wrote outside its buffers: .*{told}") as raised:
        run(source, TWICE, n=64)
    assert raised.value.comparison.rows[0].check is Check.FAILED
    assert all(row.timing is None for row in raised.value.comparison.rows)


@pytest.mark.parametrize(
    ("loop", "value", "side"),
    [
        ("int i = 0; i <= n; ++i", "2 * x[i]", "4 bytes after the end of out"),
        ("int i = 0; i < n + 64; ++i", "x[i]", "256 bytes after the end of out"),
        ("int i = 0; i <= n; ++i", "i < n ? 2 * x[i] : 1.0f", "4 bytes after the end of out"),
        ("int i = -1; i < n; ++i", "2 * x[i]", "4 bytes before the start of out"),
    ],
)
@pytest.mark.parametrize("kind", ["float", "double", "int", "short", "unsigned char"])
def test_a_value_carried_from_one_guard_to_another_is_found(
    run, loop: str, value: str, side: str, kind
) -> None:
    """An off-by-one loop reads one guard and writes another: were they equal, nothing would seem to change."""
    source = (
        f'extern "C" void solve(const {kind}* x, {kind}* out, int n) {{ for ({loop}) out[i] = {value}; }}'
    )
    side = side.replace("4 bytes", "[0-9]+ bytes").replace("256 bytes", "[0-9]+ bytes")
    reference = TWICE if "2 *" in value else "def reference(x, out, **kwargs):\n    return x.clone()\n"
    with pytest.raises(OutOfBoundsError, match=side):
        run(source, reference, n=64)


@pytest.mark.parametrize("kind", ["float", "long long"])
def test_an_update_in_place_that_runs_over_is_found(run, kind: str) -> None:
    """Twice a NaN is that NaN; twice the other guard is something else."""
    source = f'extern "C" void solve({kind}* x, int n) {{ for (int i = 0; i <= n; ++i) x[i] *= 2; }}'
    reference = 'inout = ("x",)\ndef reference(x, **kwargs):\n    x *= 2\n'
    with pytest.raises(OutOfBoundsError, match="after the end of x"):
        run(source, reference, n=64)


def test_what_is_read_beside_a_buffer_shows_in_the_answer_and_is_told_as_that(run) -> None:
    source = SCALE.replace("const float* x,", "const float* x, const float* y,").replace(
        "2 * x[i]", "x[i] + x[i + 1]"
    )
    source = source.replace("x[i + 1];", "x[i + 1] - x[i + 1] + x[i] + y[i] - y[i];")
    reference = "def reference(x, out, **kwargs):\n    return x * 2\n"
    with pytest.raises(
        VerificationError, match=r"1 of 64(.|\n)*NaN come from beside x: it reads outside"
    ) as raised:
        run(source, reference, n=64)
    assert any("come from beside x" in note_text(note) for note in raised.value.comparison.rows[0].notes)


def test_nan_of_a_solution_s_own_are_not_blamed_on_a_guard(run) -> None:
    with pytest.raises(VerificationError) as raised:
        run(SCALE.replace("2 * x[i]", "i ? 2 * x[i] : 0.0f / 0.0f"), TWICE, n=64)
    assert "beside" not in str(raised.value)


@pytest.mark.parametrize("kind", ["bool", "double", "unsigned char", "long long"])
def test_guards_lie_around_buffers_of_every_width(run, kind: str) -> None:
    source = f"""
extern "C" void solve(const {kind}* x, {kind}* out, int n) {{
    for (int i = 0; i < n; ++i) out[i] = x[i];
    out[n] = 1;
}}"""
    with pytest.raises(OutOfBoundsError, match="after the end of out, the first in the place of element 48"):
        run(source, "def reference(x, out, **kwargs):\n    return x.clone()\n", n=48)


def test_a_file_that_is_no_library_has_crashed(run, tmp_path: Path) -> None:
    library = tmp_path / "k.so"
    library.write_bytes(b"no library")
    os.utime(library, (2**32, 2**32))  # newer than the source, which is written below
    with pytest.raises(CrashedError, match="library cannot be used"):
        run(SCALE, TWICE, n=4, compile=False)


def test_a_library_on_a_device_it_does_not_run_on_is_refused(run) -> None:
    with pytest.raises(UsageError, match="runs on the CPU"):
        run(SCALE, TWICE, n=4, device="cuda")


def test_a_timer_that_this_device_does_not_have_is_told(run) -> None:
    with pytest.raises(UnavailableError, match="device_events"):
        run(SCALE, TWICE, n=4, timing_method="cuda_event")
