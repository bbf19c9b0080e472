"""What a library makes of each call, held against the manifest on tensors without values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmark.errors import UsageError
from kernelmark.manifest import Manifest, WorkloadCall, load_manifest
from kernelmark.manifest.levels import Level
from kernelmark.manifest.levels.workloads import (
    Workloads,
    check_dtypes,
    check_shapes,
    check_workloads,
)


def bmm(call: WorkloadCall) -> Callable[..., Any]:
    """Give the right reference for the manifest of conftest."""

    def reference(
        a: torch.Tensor, b: torch.Tensor, lengths: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        product = a @ (b.mT if call.params["transpose_b"] else b)
        return product if bias is None else product + bias

    return reference


class Workload:
    """What an entry builds, with inputs as the manifest declares them but for what a test changes."""

    def __init__(self, call: WorkloadCall, reference: Any, change: Callable[[list[Any]], Any]) -> None:
        self.call, self.reference, self.change = call, reference, change

    def gen_inputs(self) -> Any:
        specs = [self.call.tensors.get(name) for name in self.call.signature]
        return self.change([s and torch.empty(s.shape, dtype=getattr(torch, s.dtype)) for s in specs])

    def verification(self) -> str:
        return "exact"


def workloads(
    reference_for: Callable[[WorkloadCall], Any], change: Callable[[list[Any]], Any] = tuple, **facts: Any
) -> Workloads:
    source = (lambda call: Workload(call, reference_for(call), change), None)
    return Workloads({"BmmFwdOp": source}, "cases", Path(__file__).parent, **facts)


def always(reference: Callable[..., Any] | None) -> Workloads:
    return workloads(lambda _call: reference)


def test_a_right_reference_has_no_findings_at_either_level(manifest: Manifest) -> None:
    references = workloads(bmm)
    for level in (check_workloads, check_shapes, check_dtypes):
        result = level(manifest, references)
        assert (result.checked, result.what, result.findings) == (3, "calls", ())


def test_the_reference_runs_once_per_call_and_never_on_values(manifest: Manifest) -> None:
    seen: list[tuple[str, tuple[Any, ...]]] = []

    def recording(call: WorkloadCall) -> Callable[..., Any]:
        def reference(*inputs: Any) -> torch.Tensor:
            seen.append((call.id, inputs))
            return bmm(call)(*inputs)

        return reference

    references = workloads(recording)
    check_shapes(manifest, references)
    check_dtypes(manifest, references)
    assert [name for name, _ in seen] == [call.id for call in manifest.calls()]
    assert seen[2][1][3] is None  # the bias that the row does not give
    assert all(
        type(tensor) is not torch.Tensor for _, inputs in seen for tensor in inputs if tensor is not None
    )


def test_a_terabyte_costs_nothing(folder: Path, gemm: str) -> None:
    (folder / "gemm.yaml").write_text(gemm.replace("{B: 2, M: 3,", "{B: 4000000, M: 300000,"))
    assert check_shapes(load_manifest(folder), workloads(bmm)).checked == 3


def test_a_reference_of_another_shape_is_an_error_of_the_shape_level_only(manifest: Manifest) -> None:
    references = always(lambda a, *_rest: a)
    first, *_ = check_shapes(manifest, references).errors
    assert first.message == "output 'c' is [32, 8, 16] here, [32, 8, 4] from the reference"
    assert first.where.endswith("ops.BmmFwdOp.workloads.0: BmmFwdOp-llama3-8b-scores-float16-int32")
    assert check_dtypes(manifest, references).findings == ()


def test_a_reference_of_another_dtype_is_an_error_of_the_dtype_level_only(manifest: Manifest) -> None:
    references = workloads(lambda call: lambda *inputs: bmm(call)(*inputs).double())
    first, *_ = check_dtypes(manifest, references).errors
    assert first.message == "output 'c' is float16 here, float64 from the reference"
    assert check_shapes(manifest, references).findings == ()


def test_another_number_of_outputs_is_an_error(manifest: Manifest) -> None:
    for returned, count in ((lambda a, *_rest: (a, a), 2), (lambda *_inputs: None, 0)):
        first, *_ = check_shapes(manifest, always(returned)).errors
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
    for level in (check_shapes, check_dtypes):
        result = level(manifest, always(reference))
        assert result.checked == 0
        assert result.errors == ()
        assert len(result.notes) == 3
        assert all(note.is_note for note in result.notes)
        assert result.notes[0].message.startswith("outputs not checked: ")
        assert reason in result.notes[0].message


def test_a_reference_that_holds_a_tensor_of_its_own_can_be_run(manifest: Manifest) -> None:
    held = torch.ones(16)
    result = check_shapes(manifest, workloads(lambda call: lambda *i: bmm(call)(*i) + held[: call.dims["N"]]))
    assert (result.checked, result.findings) == (3, ())


def test_a_shape_without_a_value_is_a_finding_and_the_other_rows_are_checked(folder: Path, gemm: str) -> None:
    (folder / "gemm.yaml").write_text(gemm.replace('"2*N // 2"', '"N // (K - 4)"'))
    result = check_shapes(load_manifest(folder), always(lambda a, *_rest: a))
    assert [("division by zero" in e.message, e.where.rpartition(".")[2]) for e in result.errors] == [
        (True, "0"),
        (True, "0"),
        (False, "1: BmmFwdOp-plain-float32-int32"),
    ]


def test_a_roofline_without_a_value_is_an_error_of_the_shape_level(folder: Path, gemm: str) -> None:
    (folder / "gemm.yaml").write_text(gemm.replace('"2*B*M*N*K"', '"B // (K - 4)"'))
    result = check_shapes(load_manifest(folder), workloads(bmm))
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
    first, *_ = check_shapes(load_manifest(folder), workloads(bmm)).errors
    assert first.message.startswith("mylib_raising:count raised KeyError: 'Q' (call BmmFwdOp-llama3-8b")


def test_a_roofline_that_needs_what_is_not_installed_is_a_note(
    tmp_path: Path, folder: Path, gemm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mylib_needy.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    start, end = gemm.index("    roofline:"), gemm.index("    workloads:")
    declared = "    roofline: {function: 'mylib_needy:count', compute: T}\n"
    (folder / "gemm.yaml").write_text(gemm[:start] + declared + gemm[end:])
    result = check_shapes(load_manifest(folder), workloads(bmm))
    assert (result.checked, result.errors, len(result.notes)) == (0, (), 3)
    assert "work not counted: mylib_needy cannot be imported here: No module" in result.notes[0].message


def test_a_dtype_that_the_op_does_not_take_is_an_error_of_the_dtype_level_only(
    folder: Path, gemm: str
) -> None:
    (folder / "gemm.yaml").write_text(gemm.replace("[float16, bfloat16, float32]", "[float16, bfloat16]"))
    manifest = load_manifest(folder)
    result = check_dtypes(manifest, workloads(bmm))
    assert [error.message for error in result.errors] == [
        "T is float32 in a dtype case of 'plain'; BmmFwdOp takes float16, bfloat16"
    ]
    assert (result.level, result.checked) == (Level.DTYPE, 2)
    assert check_shapes(manifest, workloads(bmm)).findings == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i: [i[0].float(), *i[1:]], "a as float32[32, 8, 4]; the manifest says float16[32, 8, 4]"),
        (lambda i: [i[0][:, :3], *i[1:]], "a as float16[32, 3, 4]; the manifest says float16[32, 8, 4]"),
        (lambda i: [*i[:3], i[0][0, 0]], "bias as float16[4]; the manifest says float16[16]"),
        (lambda i: [*i[:3], None], "bias as None; the manifest says float16[16]"),
        (lambda i: i[:3], "gives 3 inputs; the manifest says 4: a, b, lengths, bias (None for"),
        (lambda i: i[0], "gives 1 inputs; the manifest says 4"),
    ],
)
def test_inputs_of_another_shape_dtype_or_number_are_an_error(
    manifest: Manifest, change: Callable[[list[Any]], Any], message: str
) -> None:
    first, *_ = check_workloads(manifest, workloads(bmm, change)).errors
    assert message in first.message
    assert first.message.startswith("gen_inputs() gives ")
    assert first.where.endswith("ops.BmmFwdOp.workloads.0: BmmFwdOp-llama3-8b-scores-float16-int32")


def test_an_input_that_the_row_does_not_give_is_an_error(manifest: Manifest) -> None:
    result = check_workloads(manifest, workloads(bmm, lambda i: [*i[:3], i[0] if i[3] is None else i[3]]))
    (error,) = result.errors
    assert "the manifest says that it is not given" in error.message
    assert result.checked == 2


def test_inputs_drawn_from_a_distribution_are_checked_without_a_value(manifest: Manifest) -> None:
    def drawn(inputs: list[Any]) -> list[Any]:
        a, b, lengths, bias = inputs
        return [torch.randn_like(a), b.normal_(), torch.randint_like(lengths, 1, 5), bias]

    assert check_workloads(manifest, workloads(bmm, drawn)).checked == 3


def test_inputs_that_are_made_from_values_are_a_note(manifest: Manifest) -> None:
    result = check_workloads(manifest, workloads(bmm, lambda i: [i[0] * i[0].sum().item(), *i[1:]]))
    assert (result.checked, result.errors, len(result.notes)) == (0, (), 3)
    assert (
        "inputs not checked: gen_inputs() does not run on tensors without values" in result.notes[0].message
    )


def test_an_entry_s_own_inputs_stand_in_place_of_gen_inputs(manifest: Manifest) -> None:
    source = (
        lambda call: Workload(call, bmm(call), lambda _inputs: ()),
        lambda w: Workload(w.call, None, tuple).gen_inputs(),
    )
    result = check_workloads(manifest, Workloads({"BmmFwdOp": source}, "cases", Path()))
    assert (result.checked, result.findings) == (3, ())


def test_an_op_without_an_entry_is_an_error_that_says_what_to_add(manifest: Manifest) -> None:
    found = Workloads({}, "mylib.cases", Path())
    first, *_ = check_workloads(manifest, found).errors
    assert first.message == (
        "BmmFwdOp has no entry in mylib.cases; add 'BmmFwdOp': Entry(...) to the ENTRIES there"
    )
    assert check_shapes(manifest, found).checked == 0


def test_an_entry_that_raises_is_one_error_with_the_line_that_raised(manifest: Manifest) -> None:
    def build(call: WorkloadCall) -> Any:
        return call.dims["R"]

    result = check_workloads(manifest, Workloads({"BmmFwdOp": (build, None)}, "cases", Path(__file__).parent))
    (error,) = result.errors  # three calls fall over the same line
    assert error.message == "the entry raised KeyError: 'R'"
    assert error.where == f"{__file__}:{build.__code__.co_firstlineno + 1}"


def test_a_workload_that_lacks_a_method_is_an_error_at_its_class(manifest: Manifest) -> None:
    class Half:
        def gen_inputs(self) -> tuple[()]:
            return ()

    result = check_workloads(manifest, Workloads({"BmmFwdOp": (lambda _call: Half(), None)}, "cases", Path()))
    (error,) = result.errors
    assert "Half, which has no verification()" in error.message
    assert error.where.startswith(f"{__file__}:")


def test_a_declaration_that_no_run_could_follow_is_an_error(manifest: Manifest) -> None:
    def refuse(workload: Any) -> None:
        raise UsageError(f"verification() gave {workload.verification()!r}")

    (error,) = check_workloads(manifest, workloads(bmm, require=refuse)).errors
    assert error.message == "verification() gave 'exact'"


def test_a_verification_that_raises_is_told_with_its_line(manifest: Manifest) -> None:
    (error,) = check_workloads(manifest, workloads(bmm, require=lambda workload: workload.nothing())).errors
    assert "verification() raised AttributeError" in error.message
    assert error.where.startswith(f"{__file__}:")
