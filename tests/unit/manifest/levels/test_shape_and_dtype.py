"""The two levels that compare a manifest's outputs with the reference's, on tensors without values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmark.manifest import Manifest, WorkloadCall, load_manifest
from kernelmark.manifest.levels import Level, Severity, dtype, shape
from kernelmark.manifest.levels.structure import NotRun, References


def bmm(call: WorkloadCall) -> Callable[..., Any]:
    """Give the right reference for the manifest of conftest."""

    def reference(
        a: torch.Tensor, b: torch.Tensor, lengths: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        product = a @ (b.mT if call.params["transpose_b"] else b)
        return product if bias is None else product + bias

    return reference


def always(reference: Callable[..., Any] | None) -> References:
    return References(lambda _call: reference)


def test_a_right_reference_has_no_findings_at_either_level(manifest: Manifest) -> None:
    references = References(bmm)
    for level in (shape, dtype):
        result = level.check(manifest, references)
        assert (result.checked, result.what, result.findings) == (3, "calls", ())


def test_the_reference_runs_once_per_call_and_never_on_values(manifest: Manifest) -> None:
    seen: list[tuple[str, tuple[Any, ...]]] = []

    def recording(call: WorkloadCall) -> Callable[..., Any]:
        def reference(*inputs: Any) -> torch.Tensor:
            seen.append((call.id, inputs))
            return bmm(call)(*inputs)

        return reference

    references = References(recording)
    shape.check(manifest, references)
    dtype.check(manifest, references)
    assert [name for name, _ in seen] == [call.id for call in manifest.calls()]
    assert seen[2][1][3] is None  # the bias that the row does not give
    assert all(
        type(tensor) is not torch.Tensor for _, inputs in seen for tensor in inputs if tensor is not None
    )


def test_a_terabyte_costs_nothing(folder: Path, gemm: str) -> None:
    (folder / "gemm.yaml").write_text(gemm.replace("{B: 2, M: 3,", "{B: 4000000, M: 300000,"))
    assert shape.check(load_manifest(folder), References(bmm)).checked == 3


def test_a_reference_of_another_shape_is_an_error_of_the_shape_level_only(manifest: Manifest) -> None:
    references = always(lambda a, *_rest: a)
    first, *_ = shape.check(manifest, references).errors
    assert first.message == "output 'c' is [32, 8, 16] here, [32, 8, 4] from the reference"
    assert first.where.endswith("ops.BmmFwdOp.workloads.0: BmmFwdOp-llama3-8b-scores-float16-int32")
    assert dtype.check(manifest, references).findings == ()


def test_a_reference_of_another_dtype_is_an_error_of_the_dtype_level_only(manifest: Manifest) -> None:
    references = References(lambda call: lambda *inputs: bmm(call)(*inputs).double())
    first, *_ = dtype.check(manifest, references).errors
    assert first.message == "output 'c' is float16 here, float64 from the reference"
    assert shape.check(manifest, references).findings == ()


def test_another_number_of_outputs_is_an_error(manifest: Manifest) -> None:
    for returned, count in ((lambda a, *_rest: (a, a), 2), (lambda *_inputs: None, 0)):
        first, *_ = shape.check(manifest, always(returned)).errors
        assert first.message == f"1 output(s) declared, the reference gives {count}"


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        (None, "the case has no reference"),
        (lambda a, *_rest: torch.full((), float(a.sum())), "DataDependent"),
        (
            lambda a, *_rest: torch.from_numpy(a.numpy()),
            "the reference does not run on tensors without values",
        ),
        (lambda a, *_rest: a.nonzero(), "DynamicOutputShape"),
        (lambda: 3, "TypeError"),
        (lambda *_inputs: "text", "the reference returns str, which is no tensor"),
    ],
)
def test_what_cannot_be_checked_is_said_and_never_counted_as_checked(
    manifest: Manifest, reference: Callable[..., Any] | None, reason: str
) -> None:
    for level in (shape, dtype):
        result = level.check(manifest, always(reference))
        assert result.checked == 0
        assert result.errors == ()
        assert len(result.notes) == 3
        assert all(note.severity is Severity.NOTE for note in result.notes)
        assert result.notes[0].message.startswith("outputs not checked: ")
        assert reason in result.notes[0].message


def test_a_reason_that_is_known_beforehand_is_passed_on(manifest: Manifest) -> None:
    references = References(lambda call: NotRun(f"{call.op} has no entry"))
    assert shape.check(manifest, references).notes[0].message == "outputs not checked: BmmFwdOp has no entry"


def test_a_reference_that_holds_a_tensor_of_its_own_can_be_run(manifest: Manifest) -> None:
    held = torch.ones(16)
    result = shape.check(manifest, References(lambda call: lambda *i: bmm(call)(*i) + held[: call.dims["N"]]))
    assert (result.checked, result.findings) == (3, ())


def test_a_shape_without_a_value_is_a_finding_and_the_other_rows_are_checked(folder: Path, gemm: str) -> None:
    (folder / "gemm.yaml").write_text(gemm.replace('"2*N // 2"', '"N // (K - 4)"'))
    result = shape.check(load_manifest(folder), always(lambda a, *_rest: a))
    assert [("division by zero" in e.message, e.where.rpartition(".")[2]) for e in result.errors] == [
        (True, "0"),
        (True, "0"),
        (False, "1: BmmFwdOp-plain-float32-int32"),
    ]


def test_a_roofline_without_a_value_is_an_error_of_the_shape_level(folder: Path, gemm: str) -> None:
    (folder / "gemm.yaml").write_text(gemm.replace('"2*B*M*N*K"', '"B // (K - 4)"'))
    result = shape.check(load_manifest(folder), References(bmm))
    assert result.checked == 1
    assert ["flops: expression" in error.message for error in result.errors] == [True, True]


def test_a_roofline_function_that_raises_is_a_finding_and_no_crash(
    tmp_path: Path, folder: Path, gemm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mylib_raising.py").write_text("def count(call):\n    return call.dims['Q']\n")
    monkeypatch.syspath_prepend(tmp_path)
    start, end = gemm.index("    roofline:"), gemm.index("    workloads:")
    declared = "    roofline: {function: 'mylib_raising:count', compute: T}\n"
    (folder / "gemm.yaml").write_text(gemm[:start] + declared + gemm[end:])
    first, *_ = shape.check(load_manifest(folder), References(bmm)).errors
    assert first.message.startswith("mylib_raising:count raised KeyError: 'Q' (call BmmFwdOp-llama3-8b")


def test_a_roofline_that_needs_what_is_not_installed_is_a_note(
    tmp_path: Path, folder: Path, gemm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mylib_needy.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    start, end = gemm.index("    roofline:"), gemm.index("    workloads:")
    declared = "    roofline: {function: 'mylib_needy:count', compute: T}\n"
    (folder / "gemm.yaml").write_text(gemm[:start] + declared + gemm[end:])
    result = shape.check(load_manifest(folder), References(bmm))
    assert (result.checked, result.errors, len(result.notes)) == (0, (), 3)
    assert "work not counted: mylib_needy cannot be imported here: No module" in result.notes[0].message


def test_a_dtype_that_the_op_does_not_take_is_an_error_of_the_dtype_level_only(
    folder: Path, gemm: str
) -> None:
    (folder / "gemm.yaml").write_text(gemm.replace("[float16, bfloat16, float32]", "[float16, bfloat16]"))
    manifest = load_manifest(folder)
    result = dtype.check(manifest, References(bmm))
    assert [error.message for error in result.errors] == [
        "T is float32 in a dtype case of 'plain'; BmmFwdOp takes float16, bfloat16"
    ]
    assert (result.level, result.checked) == (Level.DTYPE, 2)
    assert shape.check(manifest, References(bmm)).findings == ()
