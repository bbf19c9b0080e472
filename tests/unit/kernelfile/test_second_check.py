"""The answers of a solution are checked again where it was never loaded: forged checks, forged files, honest ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelmark.errors import (
    CrashedError,
    OutOfBoundsError,
    UnavailableError,
    VerificationError,
)
from kernelmark.harness import checking
from kernelmark.kernelfile import Request, benchmark
from kernelmark.kernelfile.request import Job
from kernelmark.kernelfile.second_check import compare_answers, leave_answers, read_answers
from kernelmark.kernelfile.solutions import Ready
from kernelmark.records import Check
from kernelmark.report.notes import note_text
from kernelmark.verify import guards

WRONG = """
import torch
import kernelmark.harness.checking as checking
import kernelmark.verify.guards as guards
from kernelmark.verify import Verdict
from kernelmark.report.notes import note_text

# every check of this process passes from here on
checking.check_outputs = lambda *args, **kwargs: Verdict(True, checking.Check.VERIFIED)
guards.untouched = lambda *args, **kwargs: {}

def setup(N=64, **kwargs):
    return {"inputs": {"x": torch.randn(N), "out": torch.empty(N)}, "outputs": ["out"]}

def run_kernel(x, out):
    out.zero_()
"""


def test_a_solution_that_makes_its_own_check_pass_is_found_outside(
    asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((checking, "check_outputs"), (guards, "untouched")):  # put back what it replaces
        monkeypatch.setattr(module, name, getattr(module, name))
    # in one process with its check it gets away with it, which shows that the second check is what finds it
    assert benchmark(asked(WRONG)).rows[0].check is Check.VERIFIED
    with pytest.raises(
        VerificationError, match=r"checked\s+outside it, are wrong(.|\n)*output\['out'\]"
    ) as raised:
        benchmark(asked(WRONG, isolation=True))
    rows = raised.value.comparison.rows
    assert rows[0].check is Check.FAILED
    assert rows[0].outputs[0].mismatched == 64
    assert all(row.timing is None and row.ratio is None for row in rows)
    told = json.loads((tmp_path / "out" / "benchmark.json").read_text())
    assert told["outcome"] == "wrong"
    assert told["header"]["answers checked again"].endswith("and wrong")


def test_a_right_solution_is_checked_again_and_the_report_says_so(asked, tmp_path: Path) -> None:
    found = benchmark(asked(isolation=True))
    assert found.outcome == "measured"
    assert any("process that never loaded it" in note_text(note) for note in found.rows[0].notes)
    page = (tmp_path / "out" / "benchmark.md").read_text()
    assert "| answers checked again | yes, in a process that never loaded the solution |" in page


@pytest.mark.parametrize("left", ["None", "path.write_text('[]')"])
def test_a_worker_that_leaves_no_answers_has_shown_nothing(asked, left: str) -> None:
    trick = f"import kernelmark.kernelfile.second_check as a\na.replace = lambda path, value: {left}\n"
    with pytest.raises(VerificationError, match="left no answers that can be read"):
        benchmark(asked(trick + SCALE, isolation=True))


SCALE = """
import torch

def setup(N=64, **kwargs):
    return {"inputs": {"x": torch.randn(N), "out": torch.empty(N)}, "outputs": ["out"]}

def run_kernel(x, out):
    torch.mul(x, 2, out=out)
"""


def test_a_second_check_that_breaks_gives_no_time(asked, tmp_path: Path) -> None:
    reference = """
import sys

def reference(x, out, **kwargs):
    if sys.modules["kernelmark.isolation.channel"]._Here.judge:
        raise MemoryError("no room")
    return x * 2
"""
    with pytest.raises(UnavailableError, match="no room"):
        benchmark(asked(SCALE, reference, isolation=True))
    told = json.loads((tmp_path / "out" / "benchmark.json").read_text())
    assert told["outcome"] == "untimed"
    assert "median_ms" not in told["variants"]["solution"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which is not installed")
def test_a_library_is_called_on_values_that_the_judge_draws_again(
    write: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # whatever their order, the values it is prewarmed with, those it is checked with and others have one sum each
    source = """
#include <cstring>
static unsigned long long seen[3];
extern "C" void solve(const float* x, float* out, int n) {
    unsigned long long sum = 0;
    for (int i = 0; i < n; ++i) {
        unsigned bits;
        std::memcpy(&bits, x + i, 4);
        sum += bits;
        out[i] = 2 * x[i];
    }
    for (auto& each : seen) {
        if (!each) each = sum;
        if (each == sum) return;
    }
    BAD;
}"""
    reference = "def reference(x, out, **kwargs):\n    return x * 2\n"

    def run(bad: str):
        paths = (write("k.cpp", source.replace("BAD", bad)), write("ref.py", reference))
        quick = {
            "num_trials": 4,
            "num_warmup": 0,
            "cache": "warm",
            "compile": True,
            "compile_flags": ("-O0",),
        }
        return benchmark(Request(*paths, tmp_path / "out", values={"n": 64}, **quick))

    assert run("return").outcome == "measured"
    with pytest.raises(VerificationError, match="are wrong"):
        run("out[0] = 0")
    with pytest.raises(OutOfBoundsError, match="after the end of out") as raised:
        run("out[n] = 0")
    assert all(row.timing is None for row in raised.value.comparison.rows)
    with pytest.raises(CrashedError, match="SIGSEGV"):
        run("*(volatile int*)0 = 0")


# --- what is handed over -----------------------------------------------------------------------------------


class _Fixed:
    """A solution whose data are what they are."""

    def __init__(self, kwargs: dict, outputs: tuple[str, ...]) -> None:
        self.kwargs, self.outputs = kwargs, outputs

    def data(self, seed: int) -> Ready:
        fresh = {
            name: each.clone() if isinstance(each, torch.Tensor) else each
            for name, each in self.kwargs.items()
        }
        return Ready(fresh, self.outputs, lambda: None)


def handed_over(
    kwargs: dict, folder: Path, *, outputs: tuple[str, ...] = ("out",), inout: tuple[str, ...] = ()
):
    fixed = _Fixed(kwargs, outputs)
    own = fixed.data(0)
    own.call = lambda: [own.kwargs[name].fill_(1) for name in outputs] and None
    leave_answers(own, fixed, inout=inout, seed=1, folder=folder)
    return read_answers(folder, "cpu")


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4),
        torch.randn(4, 6).t()[::2],
        torch.randn(5, dtype=torch.bfloat16),
        torch.randn(2, 2, dtype=torch.complex64).conj(),
        torch.tensor([True, False]),
        torch.arange(7, dtype=torch.int16),
        torch.tensor(2.5, dtype=torch.float64),
        torch.empty(0, 3),
        torch.randn(8).to(torch.float8_e4m3fn),
    ],
    ids=lambda tensor: f"{tensor.dtype} {tuple(tensor.shape)}",
)
def test_tensors_of_every_kind_arrive_bit_for_bit(tensor: torch.Tensor, tmp_path: Path) -> None:
    found = handed_over({"x": tensor, "out": torch.empty(2)}, tmp_path).arguments["x"]
    assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
    if tensor.dtype is torch.float8_e4m3fn:
        found, tensor = found.view(torch.uint8), tensor.view(torch.uint8)
    assert torch.equal(found, tensor)


def test_plain_values_arrive_and_others_are_dropped_by_name(tmp_path: Path) -> None:
    plain = {
        "n": 3,
        "eps": 1e-6,
        "mode": "up",
        "none": None,
        "flag": True,
        "pair": (1, [2.5, "x"]),
        "d": torch.int8,
    }
    given = {**plain, "weights": [torch.ones(2), torch.zeros(1)], "call": print, "out": torch.empty(2)}
    found = handed_over(given, tmp_path)
    assert {name: found.arguments[name] for name in plain} == plain
    assert [each.tolist() for each in found.arguments["weights"]] == [[1.0, 1.0], [0.0]]
    assert found.dropped == {"call": "a builtin_function_or_method is no plain data"}
    assert found.outputs["out"].tolist() == [1.0, 1.0]


def test_an_output_that_is_updated_is_handed_over_as_it_was_before_the_call(tmp_path: Path) -> None:
    found = handed_over({"out": torch.full((2,), 7.0)}, tmp_path, inout=("out",))
    assert found.arguments["out"].tolist() == [7.0, 7.0]
    assert found.outputs["out"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("answers.json", "{"),
        ("answers.json", "[]"),
        (
            "answers.json",
            '{"arguments": {}, "outputs": {"out": {"tensor": "float32", "shape": [-1], "data": true}}}',
        ),
        (
            "answers.json",
            '{"arguments": {}, "outputs": {"out": {"tensor": "load", "shape": [1], "data": true}}}',
        ),
        (
            "answers.json",
            '{"arguments": {}, "outputs": {"out": {"tensor": "float64", "shape": [9], "data": true}}}',
        ),
        (
            "answers.json",
            '{"arguments": {}, "outputs": {"out": {"tensor": "int8", "shape": [1e30], "data": true}}}',
        ),
        ("answers.json", '{"arguments": {}, "outputs": {"out": {"value": 3}}}'),
        ("answers.bin", ""),
    ],
)
def test_forged_files_are_refused(name: str, text: str, tmp_path: Path) -> None:
    handed_over({"out": torch.empty(2)}, tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(VerificationError):
        read_answers(tmp_path, "cpu")


@pytest.mark.parametrize(
    ("reference", "undone"),
    [
        ("def reference(x, out, **kwargs):\n    return x * 2\n", ""),
        ("def reference(x, out, call, **kwargs):\n    return x * 2\n", "setup() gives call, and a function"),
    ],
)
def test_an_argument_that_cannot_travel_stops_the_check_only_where_the_reference_needs_it(
    asked, tmp_path: Path, reference: str, undone: str
) -> None:
    x = torch.randn(4)
    fixed = _Fixed({"x": x, "out": torch.empty(4), "call": lambda: None}, ("out",))
    own = fixed.data(0)
    own.call = lambda: torch.mul(own.kwargs["x"], 2, out=own.kwargs["out"])
    leave_answers(own, fixed, inout=(), seed=1, folder=tmp_path)
    found = compare_answers(Job(tmp_path, asked(reference=reference), None, 1), "cpu")
    assert found.undone.startswith(undone)
    assert bool(found.outputs) is not bool(undone)


def test_what_would_prove_nothing_is_told(asked, tmp_path: Path) -> None:
    # within this tolerance zeros are right too
    handed_over({"x": torch.randn(64), "out": torch.zeros(64)}, tmp_path)
    reference = "import torch\natol = 100\ndef reference(x, out, **kwargs):\n    return x\n"
    found = compare_answers(Job(tmp_path, asked(reference=reference), None, 1), "cpu")
    assert not found.wrong
    assert "zeros" in found.vacuous
