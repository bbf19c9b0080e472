"""What every op does, whatever it computes: which path a device gets, and what the op says of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmark import probe
from kernelmark.errors import UnavailableError
from kernelmark.roofline import Work
from tileops.ops import base
from tileops.ops.base import (
    CPU_VARIABLE,
    CpuCompiler,
    Op,
    cpu_compilers,
    cxx_compiler,
    dtype_of,
    with_own_code,
)

needs_mlir = pytest.mark.skipif(not probe.module("torch_mlir"), reason=probe.module("torch_mlir").detail)
needs_compiler = pytest.mark.skipif(
    cxx_compiler() is None, reason="inductor needs a C++ compiler; there is none here"
)


class Scale(Op):
    """Multiplies by a number, which inductor has to generate code for."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor

    def launch(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def eval_roofline(self) -> Work:
        return Work(0, 0)


class Product(Scale):
    """A bare matrix product, which inductor leaves to torch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ x


class Talks(Scale):
    """Prints, which cannot be compiled into one graph."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("multiplying")
        return x * self.factor


class Eigenvalues(Scale):
    """Calls what torch-mlir has no lowering for."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvalsh(x) * self.factor


@pytest.fixture(autouse=True)
def _usual_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CPU_VARIABLE, raising=False)


@pytest.fixture
def only_mlir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CPU_VARIABLE, "mlir")


@pytest.fixture
def only_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CPU_VARIABLE, "inductor")


@pytest.fixture
def no_mlir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base.probe, "module", lambda name: probe.Probe(False, f"{name} is not installed"))


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "cxx_compiler", lambda: None)


def test_an_op_says_nothing_of_how_it_computes_before_it_has() -> None:
    assert Scale(2).backend == ""


@needs_compiler
@pytest.mark.usefixtures("only_inductor")
@pytest.mark.parametrize(
    ("kind", "told"), [(Scale, "torch inductor"), (Product, "torch inductor (library calls)")]
)
def test_the_backend_tells_generated_code_from_calls_of_torchs_own(kind: type[Scale], told: str) -> None:
    op, x = kind(3.0), torch.eye(5)
    first, again = op(x), op(x)
    expected = x if kind is Product else 3 * x
    assert torch.equal(first, expected)
    assert torch.equal(again, expected)
    assert op.backend == told


@needs_compiler
@pytest.mark.usefixtures("only_inductor")
def test_objects_of_a_class_do_not_use_up_each_others_compilations() -> None:
    with torch._dynamo.config.patch(recompile_limit=1):
        for factor in (2.0, 3.0, 4.0):
            op = Scale(factor)
            assert op(torch.ones(3)).tolist() == [factor] * 3
            assert op.backend == "torch inductor"


@pytest.mark.parametrize("compiler", ["inductor", "mlir", None])
def test_what_is_no_graph_raises_each_time_and_never_runs_uncompiled(
    compiler: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if compiler:
        monkeypatch.setenv(CPU_VARIABLE, compiler)
    if not probe.module("torch_mlir") and cxx_compiler() is None:
        pytest.skip("there is nothing here that compiles an op")
    op = Talks(2.0)
    for _ in range(2):
        with pytest.raises((torch._dynamo.exc.Unsupported, UnavailableError)):
            op(torch.ones(3))
    assert op.backend == ""
    assert "multiplying" not in capsys.readouterr().out


@needs_mlir
@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("kind", [Scale, Product])
def test_mlir_is_the_first_choice_and_needs_no_compiler(kind: type[Scale]) -> None:
    op, x = kind(3.0), torch.randn(5, 5)
    first, again = op(x), op(x)
    torch.testing.assert_close(first, x @ x if kind is Product else 3 * x)
    assert torch.equal(again, first)
    assert op.backend == "mlir default (1 thread)"  # too small to be split


@needs_compiler
@pytest.mark.usefixtures("no_mlir")
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Scale, "torch inductor (no torch-mlir)"),
        (Product, "torch inductor (library calls; no torch-mlir)"),
    ],
)
def test_without_torch_mlir_inductor_compiles_and_the_backend_says_why(kind: type[Scale], told: str) -> None:
    op, x = kind(3.0), torch.eye(5)
    assert torch.equal(op(x), x if kind is Product else 3 * x)
    assert op.backend == told


@needs_mlir
def test_what_mlir_cannot_import_goes_to_the_next_and_the_backend_says_where_it_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base, "cxx_compiler", lambda: None)
    op, x = Eigenvalues(2.0), torch.diag(torch.tensor([1.0, 2.0]))
    for _ in range(2):
        assert op(x).tolist() == [2.0, 4.0]
        assert op.backend.startswith("torch composition (mlir stopped at import of ")
        assert op.backend.endswith("; no C++ compiler)")


@needs_mlir
def test_an_op_can_say_why_mlir_is_not_for_it_unless_it_is_asked_for_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Sorted(Scale):
        not_by_mlir = "mlir sorts slowly"

    monkeypatch.setattr(base, "cxx_compiler", lambda: None)
    op, asked = Sorted(2.0), Sorted(2.0)
    assert op(torch.ones(4)).tolist() == [2, 2, 2, 2]
    assert op.backend == "torch composition (mlir sorts slowly; no C++ compiler)"
    monkeypatch.setenv(CPU_VARIABLE, "mlir")
    assert asked(torch.ones(4)).tolist() == [2, 2, 2, 2]
    assert asked.backend.startswith("mlir ")


@needs_mlir
@pytest.mark.usefixtures("only_mlir")
def test_where_mlir_alone_is_asked_for_nothing_else_computes() -> None:
    op = Eigenvalues(2.0)
    with pytest.raises(UnavailableError, match=r"TILEOPS_CPU=mlir, and Eigenvalues .*stopped at import"):
        op(torch.eye(2))
    assert op.backend == ""


@pytest.mark.usefixtures("only_inductor", "no_compiler")
def test_where_inductor_alone_is_asked_for_and_cannot_be_had_that_is_said() -> None:
    with pytest.raises(UnavailableError, match=r"TILEOPS_CPU=inductor, and Scale .*no C\+\+ compiler"):
        Scale(2.0)(torch.ones(3))


def test_the_composition_alone_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CPU_VARIABLE, "torch")
    op = Scale(2.0)
    assert op(torch.ones(3)).tolist() == [2, 2, 2]
    assert op.backend == "torch composition"


def test_the_order_is_mlir_inductor_torch_unless_the_environment_names_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert cpu_compilers() == (CpuCompiler.MLIR, CpuCompiler.INDUCTOR, CpuCompiler.TORCH)
    monkeypatch.setenv(CPU_VARIABLE, "llvm")
    with pytest.raises(ValueError, match="TILEOPS_CPU='llvm': use one of mlir, inductor, torch"):
        Scale(2.0)(torch.ones(2))


@pytest.mark.usefixtures("no_mlir", "no_compiler")
def test_with_nothing_that_compiles_the_composition_runs_and_says_so() -> None:
    op = Scale(2.0)
    assert op(torch.ones(3)).tolist() == [2, 2, 2]
    assert op.backend == "torch composition (no torch-mlir; no C++ compiler)"


@pytest.mark.usefixtures("no_mlir", "no_compiler")
def test_the_backend_is_that_of_the_last_call() -> None:
    op, here = Scale(2.0), torch.ones(3)
    composed = "torch composition (no torch-mlir; no C++ compiler)"
    seen = []
    for x in (here, here.to("meta"), here):
        op(x)
        seen.append(op.backend)
    assert seen == [composed, "triton", composed]


@pytest.mark.usefixtures("no_mlir", "no_compiler")
def test_the_first_tensor_among_the_inputs_says_where() -> None:
    class Second(Scale):
        def forward(self, nothing: Any, x: torch.Tensor) -> torch.Tensor:
            assert nothing is None
            return x + 1

    assert Second(0.0)(None, torch.zeros(2)).tolist() == [1, 1]


def _program(folder: Path, name: str) -> str:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_a_compiler_counts_under_the_one_name_that_inductor_looks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = cxx_compiler.__wrapped__  # without what this process has found before
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(base.sys, "platform", "linux")
    monkeypatch.delenv("CXX", raising=False)
    other = _program(tmp_path, "clang++")
    assert find() is None
    monkeypatch.setenv("CXX", "clang++")
    assert find() == other
    monkeypatch.setenv("CXX", "nothing-of-this-name")
    assert find() is None
    monkeypatch.delenv("CXX")
    usual = _program(tmp_path, "g++")
    assert find() == usual
    monkeypatch.setattr(base.sys, "platform", "darwin")
    assert find() == other


@needs_compiler
def test_inductor_looks_for_the_same_compiler() -> None:
    from torch._inductor.cpp_builder import get_cpp_compiler

    found = cxx_compiler()
    assert found is not None
    assert os.path.basename(get_cpp_compiler()) == os.path.basename(found)


def test_code_of_its_own_keeps_what_the_function_is() -> None:
    captured = 100

    def function(a: int, b: int = 10, *, c: int = 1) -> int:
        return captured + a + b + c

    own = with_own_code(function)
    assert own.__code__ is not function.__code__
    assert (own(1000), own(1000, 20, c=2)) == (1111, 1122)

    method = with_own_code(Scale(3.0).forward)
    assert method(2) == 6
    assert method.__func__.__code__ is not Scale.forward.__code__
    assert with_own_code(torch.bmm) is torch.bmm


@pytest.mark.parametrize("name", ["half precision", "Tensor", "int3000"])
def test_a_name_that_is_no_dtype_is_refused_with_names_that_are(name: str) -> None:
    with pytest.raises(ValueError, match=rf"no dtype '{name}'; use a name such as float16"):
        dtype_of(name)


def test_a_dtype_is_found_by_its_name() -> None:
    assert dtype_of("bfloat16") is torch.bfloat16
