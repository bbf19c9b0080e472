"""Results that share a beginning, or each other's memory, come out as the tensors say."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch_mlir")

import torchsched.result_copies as subject
from kernelmark.errors import ModelLoweringError
from tests.unit.torchsched.conftest import LOOPS
from torchsched.building import BuildOptions, build
from torchsched.elements import Element
from torchsched.execution import compile_lowered
from torchsched.result_copies import _Copy, order_copies
from torchsched.result_copies import _ordered as _ordered_copies
from torchsched.signature import TensorType

LINE = TensorType((4,), Element.F32)
MEMREF = "memref<4xf32>"


class SharedZeros(torch.nn.Module):
    """Two sums into one constant, which the compiler makes only once."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a.sum(0), b.sum(0), (a * b).sum(0)


class SharedBeginning(torch.nn.Module):
    """A value that is a result, and that two others are written into."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(a)
        one = y.slice_scatter(b[:2], 0, 0, 2)
        two = y.slice_scatter(b[:1], 0, 3, 4)
        return one, y, two, one


class Swap(torch.nn.Module):
    """Hands its inputs out in another order, and changed."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return b, a, b.select_scatter(a[0], 0, 1), a + 1


@pytest.mark.parametrize("pipeline", ["loops", "default"])
@pytest.mark.parametrize("model", [SharedZeros, SharedBeginning, Swap])
def test_several_results_are_each_right(model: type[torch.nn.Module], pipeline: str) -> None:
    inputs = (torch.randn(4, 8), torch.randn(4, 8))
    built = build(model(), inputs, BuildOptions(pipeline=(pipeline,)))
    got = built.imported.assemble(built.compiled.bind(built.imported.arguments(inputs)).run())
    for mine, right in zip(got, model()(*inputs), strict=True):
        torch.testing.assert_close(mine, right)


def _module(count: int, body: str) -> str:
    arguments = ", ".join([f"%x: {MEMREF}", *(f"%y{i}: {MEMREF}" for i in range(count))])
    return f"func.func @main({arguments}) attributes {{llvm.emit_c_interface}} {{\n{body}\nreturn }}"


def _copy(source: str, destination: str) -> str:
    return f"memref.copy {source}, {destination} : {MEMREF} to {MEMREF}"


def _fill(destination: str, value: int) -> str:
    return (
        f"%v{value} = arith.constant {value}.0 : f32\n"
        f"linalg.fill ins(%v{value} : f32) outs({destination} : {MEMREF})"
    )


def _square(name: str) -> str:
    kind = "memref<2x2xf32>"
    return f"%s{name} = memref.expand_shape %{name} [[0, 1]] output_shape [2, 2] : {MEMREF} into {kind}"


def _copy_squares(source: str, destination: str) -> str:
    return f"memref.copy %s{source}, %s{destination} : memref<2x2xf32> to memref<2x2xf32>"


@pytest.mark.parametrize("reshaped", [False, True], ids=["plain", "reshaped"])
@pytest.mark.parametrize("moves", list(itertools.product(range(3), repeat=3)), ids=str)
def test_results_that_stand_in_each_others_buffers_all_arrive(
    lower_text: Callable[..., Any], moves: tuple[int, ...], reshaped: bool
) -> None:
    """Result i is to be what stands in buffer ``moves[i]``: every way that three can be mixed up."""
    ir = pytest.importorskip("torch_mlir.ir")
    filled = [_fill(f"%y{i}", i + 1) for i in range(3)]
    if reshaped:
        filled += [_square(f"y{i}") for i in range(3)]
        copies = [_copy_squares(f"y{source}", f"y{i}") for i, source in enumerate(moves) if source != i]
    else:
        copies = [_copy(f"%y{source}", f"%y{i}") for i, source in enumerate(moves) if source != i]
    with ir.Context():
        module = ir.Module.parse(_module(3, "\n".join(filled + copies)))
        order_copies(module)
        assert module.operation.verify()
    lowered = lower_text(str(module), [LINE], [LINE] * 3, pipeline=LOOPS)
    got = compile_lowered(lowered)(torch.zeros(4))
    assert [int(each[0]) for each in got] == [source + 1 for source in moves]


def _ordered(body: str, count: int = 2) -> str:
    ir = pytest.importorskip("torch_mlir.ir")
    with ir.Context():
        module = ir.Module.parse(_module(count, body))
        order_copies(module)
        assert module.operation.verify()
        return str(module)


def test_copies_that_are_in_no_ones_way_stay_where_they_are() -> None:
    body = "\n".join([_copy("%x", "%y0"), _fill("%y1", 1)])
    ir = pytest.importorskip("torch_mlir.ir")
    with ir.Context():
        assert _ordered(body) == str(ir.Module.parse(_module(2, body)))


@pytest.mark.parametrize(
    "make",
    [
        f"%s = memref.subview %y0[0] [4] [1] : {MEMREF} to memref<4xf32, strided<[1]>>\n"
        f"%c = memref.cast %s : memref<4xf32, strided<[1]>> to {MEMREF}",
        f"%t = arith.constant true\n%c = arith.select %t, %x, %y0 : {MEMREF}",
        "%z = arith.constant 0 : index\n%o = arith.constant 1 : index\n"
        f"%c = scf.for %i = %z to %o step %o iter_args(%m = %x) -> ({MEMREF}) {{ scf.yield %y0 : {MEMREF} }}",
    ],
    ids=["views", "choice", "loop"],
)
def test_a_source_is_followed_to_the_buffer_that_it_may_be(make: str) -> None:
    text = _ordered(
        "\n".join([make, "%a = memref.alloc() : " + MEMREF, _copy("%a", "%y0"), _copy("%c", "%y1")])
    )
    into_second, into_first = text.index("%arg2 :", text.index("memref.copy")), text.rindex("%arg1 :")
    assert into_second < into_first


def test_a_loop_that_carries_several_results_does_not_mix_them() -> None:
    loop = (
        "%z = arith.constant 0 : index\n%o = arith.constant 1 : index\n"
        f"%c:2 = scf.for %i = %z to %o step %o iter_args(%m = %y0, %n = %y1) -> ({MEMREF}, {MEMREF})"
        f" {{ scf.yield %m, %n : {MEMREF}, {MEMREF} }}\n"
    )
    same = loop + _copy("%c#0", "%y0") + "\n" + _copy("%c#1", "%y1")
    ir = pytest.importorskip("torch_mlir.ir")
    with ir.Context():
        assert _ordered(same) == str(ir.Module.parse(_module(2, same)))
    crossed = _ordered(loop + _copy("%c#1", "%y0") + "\n" + _copy("%c#0", "%y1"))
    assert crossed.count("memref.alloc") == 1


@pytest.mark.parametrize("reads", [{0, 1, 2}, {1, 2}, {0, 2}], ids=str)
def test_every_source_that_may_be_any_buffer_is_read_before_any_is_written(reads: set[int]) -> None:
    copies = [_Copy(None, place, frozenset(reads)) for place in range(3)]
    ordered = list(_ordered_copies(copies))
    assert {each.writes for each in ordered} == {0, 1, 2}
    for place, copy in enumerate(ordered):
        late = [later for later in ordered[place + 1 :] if copy.writes in later.reads]
        assert all(later.circular for later in late)


def test_something_that_writes_between_the_copies_is_refused() -> None:
    body = [
        "%a = memref.alloc() : " + MEMREF,
        _copy("%a", "%y0"),
        _fill("%a", 3),
        _copy("%y0", "%y1"),
    ]
    with pytest.raises(ModelLoweringError, match=r"linalg.fill stands between the copies"):
        _ordered("\n".join(body))


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.frozensets(st.integers(0, 5), max_size=4)), min_size=1, max_size=6
    )
)
def test_any_copies_get_an_order_in_which_what_is_read_is_not_written_before(
    given_copies: list[tuple[int, frozenset[int]]],
) -> None:
    copies: list[Any] = [subject._Copy(None, writes, reads) for writes, reads in given_copies]
    ordered = list(subject._ordered(copies))
    assert sorted(map(id, ordered)) == sorted(map(id, copies))
    written: set[int] = set()
    for copy in ordered:
        assert copy.circular or not (copy.reads - {copy.writes}) & written
        written.add(copy.writes)


def test_a_copy_that_reads_nothing_of_the_others_needs_no_buffer() -> None:
    copies: list[Any] = [
        subject._Copy(None, writes, frozenset(reads)) for writes, reads in ((0, ()), (1, (0, 2)), (2, (1,)))
    ]
    assert len(list(subject._ordered(copies))) == 3
    assert [copy.circular for copy in copies] == [False, True, False]
