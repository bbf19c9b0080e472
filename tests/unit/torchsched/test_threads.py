"""Large operations are split over the threads by their outermost parallel loop; others stay as they are."""

from __future__ import annotations

import re
from typing import Any

import pytest

from torchsched.bindings import available, bindings
from torchsched.targets import Target
from torchsched.threads import LEAST_POINTS, split_over_threads

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)

TWO = Target("x86_64", threads=2, openmp="libomp.so")


def module_of(body: str, arguments: str, result: str, maps: str = "") -> Any:
    ir = bindings("ir")
    text = f"{maps}\nfunc.func @main({arguments}) -> {result} {{\n{body}\n}}"
    return ir.Module.parse(text, ir.Context())


def negation(shape: str) -> Any:
    rank = shape.count("x")
    axes = ", ".join(f"d{axis}" for axis in range(rank))
    kinds = ", ".join(['"parallel"'] * rank)
    type_ = f"tensor<{shape}>"
    return module_of(
        f"%e = tensor.empty() : {type_}\n"
        f"%0 = linalg.generic {{indexing_maps = [#m, #m], iterator_types = [{kinds}]}}"
        f" ins(%a : {type_}) outs(%e : {type_}) {{\n^bb0(%x: f32, %y: f32):\n"
        f"%n = arith.negf %x : f32\nlinalg.yield %n : f32\n}} -> {type_}\nreturn %0 : {type_}",
        f"%a: {type_}",
        type_,
        f"#m = affine_map<({axes}) -> ({axes})>",
    )


def reduction(rows: int, columns: int) -> Any:
    into, out = f"tensor<{rows}x{columns}xf32>", f"tensor<{rows}xf32>"
    return module_of(
        f'%0 = linalg.generic {{indexing_maps = [#a, #b], iterator_types = ["parallel", "reduction"]}}'
        f" ins(%a : {into}) outs(%b : {out}) {{\n^bb0(%x: f32, %y: f32):\n"
        f"%n = arith.addf %x, %y : f32\nlinalg.yield %n : f32\n}} -> {out}\nreturn %0 : {out}",
        f"%a: {into}, %b: {out}",
        out,
        "#a = affine_map<(d0, d1) -> (d0, d1)>\n#b = affine_map<(d0, d1) -> (d0)>",
    )


def foralls(module: Any) -> list[str]:
    return re.findall(r"scf\.forall \(%\w+\) in \((\d+)\)", str(module))


def test_a_large_operation_becomes_one_piece_a_thread() -> None:
    module = negation("512x512xf32")
    split_over_threads(module, target=TWO)
    assert foralls(module) == ["2"]
    assert "tensor<256x512xf32>" in str(module)
    assert module.operation.verify()


def test_the_outermost_loop_with_a_turn_for_each_thread_is_split() -> None:
    module = negation("1x1024x256xf32")
    split_over_threads(module, target=TWO)
    assert "tensor<1x512x256xf32>" in str(module)


def test_a_reduction_is_not_split_but_the_loop_around_it_is() -> None:
    module = reduction(512, 512)
    split_over_threads(module, target=TWO)
    assert "tensor<256x512xf32>" in str(module)
    module = reduction(1, 1 << 20)
    split_over_threads(module, target=TWO)
    assert not foralls(module)


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        ("16x16xf32", TWO),
        ("512x512xf32", Target("x86_64", threads=2)),  # no OpenMP runtime
        ("512x512xf32", Target("x86_64", openmp="libomp.so")),
    ],
)
def test_what_is_small_or_serial_stays_as_it_is(shape: str, target: Target) -> None:
    module = negation(shape)
    before = str(module)
    split_over_threads(module, target=target)
    assert str(module) == before


def test_how_large_is_large_can_be_said() -> None:
    assert LEAST_POINTS > 16 * 16
    module = negation("16x16xf32")
    split_over_threads(module, target=TWO, least_points=256)
    assert foralls(module) == ["2"]


def test_more_threads_than_turns_leave_the_loop_alone() -> None:
    module = negation("3x3x65536xf32")
    split_over_threads(module, target=Target("x86_64", threads=4, openmp="libomp.so"))
    assert "tensor<3x3x16384xf32>" in str(module)
