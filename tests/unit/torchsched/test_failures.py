"""What is read from a compiler's diagnostics, and catching what goes to descriptor 2."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from kernelmark.errors import (
    ModelCompileError,
    ModelError,
    ModelImportError,
    ModelLoweringError,
    ModelRunError,
)
from torchsched.failures import SHOWN, Stage, captured_stderr, failure, op_in, source_in

UNKNOWN = (
    "error: \"/home/me/model.py\":14:0: failed to legalize operation 'torch.operator' that was explicitly marked"
    ' illegal: %0 = "torch.operator"(%arg0) <{name = "torch.aten.special_bessel_j0"}> : (!torch.vtensor<[4],f32>)'
)


@pytest.mark.parametrize(
    ("diagnostics", "op"),
    [
        (UNKNOWN, "aten.special_bessel_j0"),
        ("failed to legalize operation 'torch.aten.sort' that", "aten.sort"),
        ("error: 'math.absf' op operand #0 must be floating-point-like", "math.absf"),
        ("no operation at all", None),
        ("", None),
    ],
)
def test_the_operation_is_found(diagnostics: str, op: str | None) -> None:
    assert op_in(diagnostics) == op


@pytest.mark.parametrize(
    ("diagnostics", "source"),
    [
        (UNKNOWN, "/home/me/model.py:14"),
        (
            'loc("/x/site-packages/torch/nn/linear.py":134:0): error\nnote: called from "/home/me/net.py":7:0',
            "/home/me/net.py:7",
        ),
        ('"/x/site-packages/torch/nn/linear.py":134:0', "/x/site-packages/torch/nn/linear.py:134"),
        ('"/llvm/lib/Foo.cpp":12:0', None),
        ('"-":3:1', None),
    ],
)
def test_the_models_line_is_found_before_a_librarys(diagnostics: str, source: str | None) -> None:
    assert source_in(diagnostics) == source


@pytest.mark.parametrize(
    ("stage", "kind"),
    [
        (Stage.IMPORT, ModelImportError),
        (Stage.LOWER, ModelLoweringError),
        (Stage.COMPILE, ModelCompileError),
        (Stage.RUN, ModelRunError),
    ],
)
def test_each_stage_has_its_error(stage: Stage, kind: type[ModelError]) -> None:
    error = failure(stage, "it went wrong", diagnostics=UNKNOWN)
    assert type(error) is kind
    assert error.stage == stage
    assert (error.op, error.source) == ("aten.special_bessel_j0", "/home/me/model.py:14")
    first, second, *_ = str(error).splitlines()
    assert first == f"/home/me/model.py:14: {stage}: it went wrong"
    assert second == "operation: aten.special_bessel_j0"


def test_what_is_known_better_is_not_read_from_the_diagnostics() -> None:
    error = failure(Stage.LOWER, "no", diagnostics=UNKNOWN, op="linalg.matmul", source="a.yaml:3")
    assert (error.op, error.source) == ("linalg.matmul", "a.yaml:3")


def test_long_diagnostics_are_cut_and_say_so() -> None:
    text = str(failure(Stage.LOWER, "no", diagnostics="x" * (SHOWN + 7)))
    assert text.endswith("(7 characters more)")


# --- file descriptor 2 ----------------------------------------------------------------------------


def test_what_nobody_takes_is_written_after_all(capfd: pytest.CaptureFixture[str]) -> None:
    with captured_stderr():
        os.write(2, b"from below\n")
        assert capfd.readouterr().err == ""
    assert capfd.readouterr().err == "from below\n"


def test_what_is_taken_is_not_written(capfd: pytest.CaptureFixture[str]) -> None:
    with captured_stderr() as text:
        os.write(2, b"first")
        assert text.take() == "first"
        os.write(2, b"second")
        assert text.take() == "second"
        os.write(2, b"third")
    assert capfd.readouterr().err == "third"


def test_the_descriptor_is_put_back_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with captured_stderr() as text:
            os.write(2, b"reason")
            raise ValueError(text.take())

    with pytest.raises(ValueError, match="reason"):
        fail()
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


def test_captures_may_be_nested(capfd: pytest.CaptureFixture[str]) -> None:
    with captured_stderr() as outer:
        with captured_stderr() as inner:
            os.write(2, b"in")
            assert inner.take() == "in"
        os.write(2, b"out")
        assert outer.take() == "out"
    assert capfd.readouterr().err == ""


def test_threads_do_not_see_each_others_text(capfd: pytest.CaptureFixture[str]) -> None:
    seen: dict[int, set[str]] = {number: set() for number in range(4)}

    def work(number: int) -> None:
        for _ in range(50):
            with captured_stderr() as text:
                os.write(2, b"%d" % number)
                seen[number].add(text.take())

    threads = [threading.Thread(target=work, args=(number,)) for number in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {number: {str(number)} for number in seen}
    assert capfd.readouterr().err == ""


def test_a_capture_leaks_no_descriptor() -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    with captured_stderr():
        pass
    before = count()
    for _ in range(20):
        with captured_stderr():
            pass
    assert count() == before


def test_importing_the_parts_loads_neither_torch_nor_mlir() -> None:
    program = (
        "import sys, torchsched.elements, torchsched.signature, torchsched.failures,"
        " torchsched.results, torchsched.ingress, torchsched.ingress.shapes,"
        " torchsched.ingress.flops\n"
        "print(sorted({'torch', 'torch_mlir', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
