from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kernelmark.errors import ConfigError
from kernelmark.manifest import Manifest
from kernelmark.manifest.levels import Finding, Level, check_classes, check_files, import_ops


def test_a_whole_manifest_has_no_findings(folder: Path) -> None:
    result = check_files(folder)
    assert (result.level, result.checked, result.what, result.findings) == (Level.SCHEMA, 1, "files", ())


def test_every_problem_of_every_file_is_a_finding_with_its_place(folder: Path, gemm: str) -> None:
    (folder / "gemm.yaml").write_text(
        gemm.replace("mutates: [a]", "mutates: [x]").replace("{c: a}", "{c: y}")
    )
    (folder / "x.yaml").write_text("a: 1\na: 2")
    result = check_files(folder)
    assert [finding.where for finding in result.errors] == [
        f"{folder}/gemm.yaml:20: ops.BmmFwdOp.effects.mutates.0",
        f"{folder}/gemm.yaml:21: ops.BmmFwdOp.effects.aliases.c",
        f"{folder}/x.yaml:2: a",
    ]
    assert result.checked == 2


def test_a_missing_folder_is_a_finding(tmp_path: Path) -> None:
    (finding,) = check_files(tmp_path / "none").errors
    assert finding == Finding(str(tmp_path / "none"), finding.message)
    assert "no such folder" in finding.message


INIT = "def __init__(self, dtype, transpose_b, rows, biased, tuned, out): ..."
CALL = "def __call__(self, a, b, lengths, bias): ..."

Errors = Callable[[str], list[str]]


def _module(source: str) -> ModuleType:
    module = ModuleType("mylib_ops")
    exec(source, vars(module))  # a class body as a user would write it
    return module


@pytest.fixture
def errors_of(manifest: Manifest) -> Errors:
    """Give what the level says of a module with this source."""

    def errors(source: str) -> list[str]:
        result = check_classes(manifest, _module(source))
        assert result.checked == 1
        assert result.findings == result.errors
        return [finding.message for finding in result.errors]

    return errors


def _op(init: str = INIT, call: str = CALL) -> str:
    return f"class BmmFwdOp:\n    {init}\n    {call}\n"


def test_an_op_that_takes_what_the_manifest_says_has_no_findings(errors_of: Errors) -> None:
    assert errors_of(_op()) == []


@pytest.mark.parametrize(
    "call",
    [
        "def __call__(self, a, b, lengths, bias=None): ...",
        "def __call__(self, a, b, /, lengths, bias, *, stream=None): ...",
        "def __call__(self, *args): ...\n    def forward(self, a, b, lengths, bias): ...",
    ],
)
def test_other_ways_to_write_the_same_call_are_fine(errors_of: Errors, call: str) -> None:
    assert errors_of(_op(call=call)) == []


def test_an_op_may_take_more_arguments_if_they_have_defaults(errors_of: Errors) -> None:
    assert errors_of(_op(INIT.replace("out)", "out, *, autotune=True)"))) == []
    assert errors_of(_op("def __init__(self, **options): ...")) == []


def test_a_torch_module_is_compared_by_its_forward(manifest: Manifest) -> None:
    class BmmFwdOp(torch.nn.Module):
        def __init__(self, dtype, transpose_b, rows, biased, tuned, out) -> None: ...

        def forward(self, a, b, bias, lengths) -> None: ...

    module = ModuleType("mylib_ops")
    module.BmmFwdOp = BmmFwdOp  # pyright: ignore[reportAttributeAccessIssue]
    (finding,) = check_classes(manifest, module).errors
    assert finding.message == (
        "BmmFwdOp.forward takes (a, b, bias, lengths), the manifest says (a, b, lengths, bias)"
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "mylib_ops has no class 'BmmFwdOp'; op classes there: none"),
        ("BmmFwdOp = 3", "mylib_ops has no class 'BmmFwdOp'"),
        (_op(INIT.replace("out)", "ouT)")), "BmmFwdOp() takes no 'out'; did you mean 'ouT'?"),
        (_op(INIT.replace("out)", "out, extra)")), "BmmFwdOp() needs 'extra', which 'arguments' does not give"),
        (_op(INIT.replace("dtype,", "dtype, /,")), "BmmFwdOp() takes 'dtype' by position only"),
        (_op(call=""), "BmmFwdOp.__call__ is missing, so the op cannot be called"),
        (_op(call=CALL.replace("a, b", "b, a")), "BmmFwdOp.__call__ takes (b, a, lengths, bias), the manifest says"),
        (_op(call=CALL.replace("a, b", "x, b")), "BmmFwdOp.__call__ takes (x, b, lengths, bias), the manifest says"),
        (_op(call=CALL.replace(", bias", "")), "BmmFwdOp.__call__ takes (a, b, lengths), the manifest says"),
        (_op(call=CALL.replace("bias", "bias, out=None")), "takes (a, b, lengths, bias, out), the manifest says"),
        (_op(call=CALL.replace("bias", "bias, *, out")), "BmmFwdOp.__call__ needs 'out' by name"),
        (_op(call="def __call__(self, *inputs): ..."), "BmmFwdOp.__call__ takes *args, so its inputs have no names"),
    ],
)  # fmt: skip
def test_an_op_that_takes_something_else_is_a_finding(errors_of: Errors, source: str, message: str) -> None:
    assert any(message in error for error in errors_of(source)), errors_of(source)


def test_a_class_that_python_cannot_describe_is_a_finding_and_no_crash(manifest: Manifest) -> None:
    module = ModuleType("mylib_ops")
    module.BmmFwdOp = dict  # pyright: ignore[reportAttributeAccessIssue]
    (finding, *_) = check_classes(manifest, module).errors
    assert "dict" in finding.message


def test_a_class_that_the_manifest_lacks_is_a_finding(errors_of: Errors) -> None:
    extra = (
        "import abc\n"
        "from fractions import Fraction as ImportedOp\n"
        "class Op: ...\n"
        "class _PrivateOp: ...\n"
        "class BaseOp(abc.ABC):\n    @abc.abstractmethod\n    def f(self): ...\n"
        "class Helper: ...\n"
        "class ReluOp: ...\n"
    )
    assert errors_of(_op() + extra) == [
        "class ReluOp is not in the manifest; declare it there, or let its name not end in Op"
    ]


def test_a_finding_is_at_the_ops_place_in_the_manifest(manifest: Manifest) -> None:
    (finding,) = check_classes(manifest, _module(_op(call=""))).errors
    assert finding.where.endswith("gemm.yaml:3: ops.BmmFwdOp.inputs")


def test_a_module_that_is_not_there_is_an_error_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"ops = 'no_such_lib\.ops': there is no module 'no_such_lib'"):
        import_ops("no_such_lib.ops")
