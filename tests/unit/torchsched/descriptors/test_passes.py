"""Pass text is put into MLIR's spelling, and MLIR itself says which passes and options there are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmark.errors import ScheduleError
from torchsched.bindings import available
from torchsched.descriptors import load_schedule
from torchsched.descriptors.passes import check_passes, plain_lists, with_options
from torchsched.targets import Target

Write = Callable[[str, str], Path]
needs_mlir = pytest.mark.skipif(not available(), reason=available().detail)


@pytest.mark.spec("L8")
@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("x{sizes=[1, 8]}", "x{sizes=1,8}"),
        ("x{sizes = [ 1 ,8 ] other=[2]}", "x{sizes=1,8 other=2}"),
        ("func.func(x{a=[1, 2]},y)", "func.func(x{a=1,2},y)"),
        ("x{sizes=1,8}", "x{sizes=1,8}"),
        ("x", "x"),
    ],
)
def test_lists_are_written_without_brackets_and_spaces(text: str, plain: str) -> None:
    assert plain_lists(text) == plain


def test_options_are_written_behind_the_name() -> None:
    assert with_options("x", {}) == "x"
    assert with_options("x", {"a": True, "b": (1, 8), "c": "y"}) == "x{a=true b=1,8 c=y}"


@needs_mlir
@pytest.mark.spec("L8")
def test_mlir_takes_a_list_with_a_space_as_a_schedule_writes_it(write: Write) -> None:
    path = write(
        "s.yaml",
        "pipeline:\n"
        "  - pass: linalg-block-pack-matmul{block-factors=[32, 16, 32]}\n"
        "  - pass: convert-vector-to-scf\n    options: {full-unroll: true, target-rank: 2}\n"
        "  - pass: func.func(affine-loop-tile{tile-sizes=[1, 8]},cse)\n",
    )
    check_passes(load_schedule(path, Target("x86_64")).written)


@needs_mlir
@pytest.mark.spec("L8")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pass: canonicalise", "MLIR has no pass 'canonicalise'; did you mean 'canonicalize'"),
        (
            "bundle: [cse, one-shot-bufferise]",
            "MLIR has no pass 'one-shot-bufferise'; did you mean 'one-shot-buff",
        ),
        ("pass: func.func(cse,csse)", "MLIR has no pass 'csse'; did you mean 'cse'"),
        (
            "pass: convert-vector-to-scf{full-unrol=true}",
            "pass 'convert-vector-to-scf' has no option 'full-unrol'; did you mean 'full-unroll'",
        ),
        ("pass: convert-vector-to-scf{full-unroll=3}", "MLIR cannot read the pass .*'3' is invalid value"),
        (
            "pass: affine-loop-tile{tile-sizes=1}",
            r"on a module; write func\.func\(affine-loop-tile\{tile-sizes=1\}\)",
        ),
        ("bundle: [cse, eliminate-empty-tensor]", "did you mean 'eliminate-empty-tensors'"),
        ("pass: canonicalize{", "MLIR cannot read the pass"),
        ("pass: func.func(cse", "MLIR cannot read the pass"),
    ],
)
def test_an_unknown_pass_or_option_is_an_error_with_file_line_and_near_names(
    write: Write, text: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write("inner.yaml", f"pipeline:\n  - pass: cse\n  - {text}\n")
    path = write("outer.yaml", "pipeline:\n  - include: inner.yaml\n")
    schedule = load_schedule(path, Target("x86_64"))
    with pytest.raises(ScheduleError, match=message) as raised:
        check_passes(schedule.written)
    first, *rest = str(raised.value).splitlines()
    assert "inner.yaml:3" in first
    assert rest[-1].endswith("outer.yaml:2")
    assert (
        capfd.readouterr().err == ""
    )  # what MLIR writes to descriptor 2 is in the message, and nowhere else
