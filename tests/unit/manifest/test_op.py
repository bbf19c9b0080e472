# ruff: noqa: E501 - a table of cases reads best with one case a line
"""Rows made into calls."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kernelmark.errors import ManifestError, UsageError
from kernelmark.manifest import Manifest, TensorSpec, WorkCount, WorkloadCall, load_manifest


@pytest.mark.spec("T2")
def test_there_is_one_call_per_dtype_case_per_row_in_the_order_of_the_file(manifest: Manifest) -> None:
    assert [call.id for call in manifest.op("BmmFwdOp").calls()] == [
        "BmmFwdOp-llama3-8b-scores-float16-int32",
        "BmmFwdOp-llama3-8b-scores-bfloat16-int64",
        "BmmFwdOp-plain-float32-int32",
    ]


@pytest.mark.spec("T2")
def test_an_id_stays_when_rows_cases_and_the_order_of_bindings_change(folder: Path, gemm: str) -> None:
    before = [call.id for call in load_manifest(folder).calls()]
    row = gemm[gemm.index("      - label: llama3") : gemm.index("      - label: plain")]
    changed = gemm.replace(row, "").replace(
        "{T: float32, I: int32}", "{I: int64, T: float16}, {I: int32, T: float32}"
    )
    (folder / "gemm.yaml").write_text(changed)
    assert [call.id for call in load_manifest(folder).calls()] == ["BmmFwdOp-plain-float16-int64", before[-1]]


def test_a_call_holds_the_numbers_of_its_row_and_case(manifest: Manifest) -> None:
    call = manifest.op("BmmFwdOp").calls()[0]
    assert (call.op, call.label, call.source) == ("BmmFwdOp", "llama3-8b-scores", "Llama 3 8B, 32 heads")
    assert call.dtypes == {"T": "float16", "I": "int32"}
    assert call.dims == {"B": 32, "M": 8, "K": 4, "N": 16}
    assert call.params == {"transpose_b": True, "alpha": 1.0, "mode": "fast"}
    assert list(call.tensors.items()) == [
        ("a", TensorSpec((32, 8, 4), "float16")),
        ("b", TensorSpec((32, 16, 4), "float16")),
        ("lengths", TensorSpec((32,), "int32")),
        ("bias", TensorSpec((16,), "float16")),
    ]
    assert call.outputs == {"c": TensorSpec((32, 8, 16), "float16")}
    assert call.arguments == {
        "dtype": "float16",
        "transpose_b": True,
        "rows": 256,
        "biased": True,
        "tuned": True,
        "out": "int8",
    }
    assert (call.effects.mutates, call.effects.writes, call.effects.aliases) == (("a",), (), {"c": "a"})


def test_an_optional_input_that_the_row_does_not_give_is_in_the_signature_only(manifest: Manifest) -> None:
    call = manifest.op("BmmFwdOp").calls()[2]
    assert call.signature == ("a", "b", "lengths", "bias")
    assert list(call.tensors) == ["a", "b", "lengths"]
    assert call.arguments["biased"] is False


@pytest.mark.spec("T8")
def test_nothing_done_to_a_call_reaches_the_manifest(manifest: Manifest) -> None:
    spec = manifest.op("BmmFwdOp")
    call = spec.calls()[0]
    untouched = copy.deepcopy(spec.calls())
    for value in (call.dtypes, call.dims, call.params, call.tensors, call.outputs, call.arguments):
        value.clear()
    call.effects.aliases.clear()  # pyright: ignore[reportAttributeAccessIssue] - a vandal does not ask
    assert spec.calls() == untouched


@pytest.mark.spec("T8")
def test_a_spec_cannot_be_written(manifest: Manifest) -> None:
    spec = manifest.op("BmmFwdOp")
    with pytest.raises(AttributeError):
        spec.name = "x"  # pyright: ignore[reportAttributeAccessIssue]
    for mapping in (
        manifest.ops,
        spec.arguments,
        spec.effects.aliases,
        spec.rows[0].dims,
        spec.rows[0].cases[0],
    ):
        with pytest.raises(TypeError):
            mapping["x"] = 1  # pyright: ignore[reportIndexIssue]


def test_a_call_goes_to_another_process_and_back(manifest: Manifest) -> None:
    call = manifest.op("BmmFwdOp").calls()[0]
    back = pickle.loads(pickle.dumps(call))
    assert back == call
    assert back.roofline() == call.roofline()


def test_an_unknown_op_is_answered_with_near_names(manifest: Manifest) -> None:
    with pytest.raises(UsageError, match=r"no op 'BmmFwd' in this manifest; did you mean 'BmmFwdOp'\?"):
        manifest.op("BmmFwd")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"2*N // 2"', '"N / 2"', "outputs.c.shape.2 (N / 2) is 8.0; a size is an int, 0 or more; write //"),
        ('"2*N // 2"', '"N - 20"', "outputs.c.shape.2 (N - 20) is -4; a size is an int, 0 or more (in row"),
        ('"2*N // 2"', '"N > 2"', "outputs.c.shape.2 (N > 2) is True; a size is an int"),
        ('"2*N // 2"', "mode", "outputs.c.shape.2 (mode) is 'fast'; a size is an int"),
        ('"2*N // 2"', '"N // (K - 4)"', "outputs.c.shape.2: expression 'N // (K - 4)', column 1: division by zero"),
        ('B*M', '"B // (K - 4)"', "arguments.rows: expression 'B // (K - 4)', column 1: division by zero"),
        ("[float16, bfloat16, float32]", "[float32]", "T is float16 in a dtype case of 'llama3-8b-scores'; BmmFwdOp takes float32"),
    ],
)  # fmt: skip
def test_a_row_whose_arithmetic_has_no_value_is_named_with_its_line(
    folder: Path, gemm: str, old: str, new: str, message: str
) -> None:
    (folder / "gemm.yaml").write_text(gemm.replace(old, new, 1))
    spec = load_manifest(folder).op("BmmFwdOp")
    with pytest.raises(ManifestError) as caught:
        spec.calls()
    assert str(caught.value).startswith(f"{folder}/gemm.yaml:28: ops.BmmFwdOp.workloads.0: {message}")


def test_the_error_shows_what_the_row_binds(folder: Path, gemm: str) -> None:
    (folder / "gemm.yaml").write_text(gemm.replace('"2*N // 2"', '"N - 20"'))
    with pytest.raises(
        ManifestError, match="in row 'llama3-8b-scores': B=32, M=8, K=4, N=16, transpose_b=True"
    ):
        load_manifest(folder).calls()


def test_an_op_without_dtype_variables_has_one_case_per_row(
    tmp_path: Path, spoiled: Callable[[str, str], list[str]]
) -> None:
    text = (
        "family: f\nops:\n  XOp:\n    summary: s\n    inputs: {x: {dtype: int32, shape: []}}\n"
        "    outputs: {y: {dtype: int32, shape: [0]}}\n    arguments: {}\n"
        "    roofline: {flops: 0, bytes: 4, compute: int32}\n    workloads: [{label: a, source: s}]\n"
    )
    (tmp_path / "f.yaml").write_text(text)
    (call,) = load_manifest(tmp_path).calls()
    assert call.id == "XOp-a"
    assert call.tensors == {"x": TensorSpec((), "int32")}
    assert call.outputs == {"y": TensorSpec((0,), "int32")}
    assert tuple(call.roofline()) == (0, 4, "int32")


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
