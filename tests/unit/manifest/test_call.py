from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kernelmark.errors import ManifestError
from kernelmark.manifest import Manifest, WorkCount, WorkloadCall, load_manifest


@pytest.mark.spec("T5")
def test_the_params_of_a_report_are_every_tensor_and_every_parameter(manifest: Manifest) -> None:
    assert manifest.op("BmmFwdOp").calls()[2].tensor_params() == {
        "a": "float32[2, 3, 7]",
        "b": "float32[2, 7, 5]",
        "lengths": "int32[2]",
        "c": "float32[2, 3, 5]",
        "transpose_b": False,
        "alpha": 0.5,
        "mode": "exact",
    }


def test_an_inline_roofline_counts_what_this_call_does(manifest: Manifest) -> None:
    with_bias, _, without = manifest.op("BmmFwdOp").calls()
    assert with_bias.roofline() == WorkCount(
        2 * 32 * 8 * 16 * 4, (32 * 8 * 4 + 32 * 4 * 16 + 32 * 8 * 16 + 16) * 2, "float16"
    )
    assert without.roofline() == WorkCount(
        2 * 2 * 3 * 5 * 7, (2 * 3 * 7 + 2 * 7 * 5 + 2 * 3 * 5) * 4, "float32"
    )


@pytest.mark.parametrize(
    ("flops", "message"),
    [
        ("0 - B", "flops is -32; it must be a number, 0 or more"),
        ("mode", "flops is 'fast'; it must be a number"),
        ("B // (K - 4)", "flops: expression 'B // (K - 4)', column 1: division by zero"),
    ],
)
def test_an_inline_roofline_without_a_count_is_named_with_its_line_and_call(
    folder: Path, gemm: str, flops: str, message: str
) -> None:
    (folder / "gemm.yaml").write_text(gemm.replace('"2*B*M*N*K"', f'"{flops}"'))
    call = load_manifest(folder).calls()[0]
    with pytest.raises(ManifestError) as caught:
        call.roofline()
    assert str(caught.value).startswith(f"{folder}/gemm.yaml:23: ops.BmmFwdOp.roofline: {message}")
    assert "call BmmFwdOp-llama3-8b-scores-float16-int32" in str(caught.value)


def test_a_fraction_of_an_operation_is_rounded(folder: Path, gemm: str) -> None:
    (folder / "gemm.yaml").write_text(gemm.replace('"2*B*M*N*K"', '"B / 3"'))
    assert load_manifest(folder).calls()[0].roofline().flops == 11


@pytest.fixture
def counted_by(folder: Path, gemm: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., WorkloadCall]:
    """Give a call whose roofline is the function ``mylib_perf:count``, which returns what is asked."""

    def make(function: Any, compute: str = "", reference: str = "mylib_perf:count") -> WorkloadCall:
        module = ModuleType("mylib_perf")
        module.count = function  # pyright: ignore[reportAttributeAccessIssue]
        monkeypatch.setitem(sys.modules, "mylib_perf", module)
        start, end = gemm.index("    roofline:"), gemm.index("    workloads:")
        declared = f"    roofline: {{function: '{reference}'{compute and f', compute: {compute}'}}}\n"
        (folder / "gemm.yaml").write_text(gemm[:start] + declared + gemm[end:])
        return load_manifest(folder).calls()[0]

    return make


def test_a_roofline_function_gets_the_call_and_may_return_a_pair(
    counted_by: Callable[..., WorkloadCall],
) -> None:
    call = counted_by(lambda call: (call.dims["B"], call.tensors["a"].shape[1]), compute="T")
    assert call.roofline() == WorkCount(32, 8, "float16")


def test_a_roofline_function_may_return_an_object_with_the_three_numbers(
    counted_by: Callable[..., WorkloadCall],
) -> None:
    work = SimpleNamespace(flops=5, bytes=6, compute="bfloat16")
    assert counted_by(lambda _call: work).roofline() == WorkCount(5, 6, "bfloat16")
    assert counted_by(lambda _call: work, compute="float64").roofline() == WorkCount(5, 6, "float64")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda _call: (1, 2),
            "the function returns a pair, so 'compute' must say which dtype's rate counts",
        ),
        (lambda _call: 3, "mylib_perf:count returned 3; it must return"),
        (lambda _call: None, "mylib_perf:count returned None; it must return"),
        (lambda _call: SimpleNamespace(flops=1, bytes=2, compute="fp16"), "compute is 'fp16', no dtype"),
        (lambda _call: SimpleNamespace(flops=-1, bytes=2, compute="float16"), "flops is -1"),
        (lambda _call: SimpleNamespace(flops=1, bytes=float("nan"), compute="float16"), "bytes is nan"),
        (lambda _call: SimpleNamespace(flops=True, bytes=2, compute="float16"), "flops is True"),
        (7, "function 'mylib_perf:count' is 7, which cannot be called"),
    ],
)
def test_a_roofline_function_that_counts_nothing_usable_is_an_error_of_the_manifest(
    counted_by: Callable[..., WorkloadCall], function: Any, message: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        counted_by(function).roofline()
    assert message in str(caught.value)
    assert "gemm.yaml:23: ops.BmmFwdOp.roofline" in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("mylib_perf:cuont", "no 'cuont' in mylib_perf; did you mean 'count'?"),
        ("mylib_perf:count.bmm", "no 'bmm' in mylib_perf"),
        ("no_such_module.perf:count", "there is no module 'no_such_module'"),
    ],
)
def test_a_roofline_function_is_looked_for_when_it_is_asked(
    counted_by: Callable[..., WorkloadCall], reference: str, message: str
) -> None:
    call = counted_by(lambda _call: (1, 2), reference=reference)
    with pytest.raises(ManifestError) as caught:
        call.roofline()
    assert message in str(caught.value)


def test_a_roofline_function_that_raises_is_named_with_its_cause(
    counted_by: Callable[..., WorkloadCall],
) -> None:
    with pytest.raises(ManifestError, match="mylib_perf:count raised KeyError: 'Q'") as caught:
        counted_by(lambda call: call.dims["Q"]).roofline()
    assert isinstance(caught.value.__cause__, KeyError)
