"""Buffers that a call would allocate become arguments, share memory where they may, and change no result."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchsched.elements import Element
from torchsched.execution import compile_lowered
from torchsched.signature import TensorType
from torchsched.workspaces import _Buffer, _share, hoist, hoist_workspaces, workspaces_of

LINE = TensorType((32,), Element.F32)
HEAD = """
func.func @main(%x: memref<32xf32>, %y: memref<32xf32>) attributes {llvm.emit_c_interface} {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %four = arith.constant 4 : index
"""


def _double(source: str, destination: str) -> str:
    memref = "memref<32xf32>"
    return f"linalg.add ins({source}, {source} : {memref}, {memref}) outs({destination} : {memref})\n"


CHAIN = HEAD + (
    "%a = memref.alloc() {alignment = 64 : i64} : memref<32xf32>\n"
    + _double("%x", "%a")
    + "%b = memref.alloc() : memref<32xf32>\n"
    + _double("%a", "%b")
    + "memref.dealloc %a : memref<32xf32>\n"
    + "%c = memref.alloc() : memref<32xf32>\n"
    + _double("%b", "%c")
    + _double("%c", "%y")
    + "memref.dealloc %b : memref<32xf32>\nmemref.dealloc %c : memref<32xf32>\nreturn }"
)
"""Three buffers in a row, of which two are in use at a time."""


@pytest.fixture
def parse() -> Callable[[str], Any]:
    ir = pytest.importorskip("torch_mlir.ir")

    def parsed(text: str) -> Any:
        with ir.Context():
            return ir.Module.parse(text)

    return parsed


def _sizes(module: Any) -> list[int]:
    found = hoist_workspaces(module)
    assert module.operation.verify()
    assert workspaces_of(module) == found
    return [each.nbytes for each in found]


def test_buffers_that_are_never_in_use_together_share_memory(parse: Callable[[str], Any]) -> None:
    module = parse(CHAIN)
    assert _sizes(module) == [128, 128]
    text = str(module)
    assert "memref.alloc" not in text
    assert "memref.dealloc" not in text
    assert text.count("memref.view") == 3


def test_a_second_time_changes_nothing(parse: Callable[[str], Any]) -> None:
    module = parse(CHAIN)
    first = hoist_workspaces(module)
    before = str(module)
    hoist(module, target=None)
    assert str(module) == before
    assert hoist_workspaces(module) == first


@pytest.mark.parametrize(
    ("body", "sizes"),
    [
        ("%a = memref.alloc(%four) : memref<?xf32>", []),
        ("%a = memref.alloc() : memref<32xf32, strided<[1], offset: 4>>", []),
        ("%a = memref.alloc() : memref<32xf32, 1>", []),
        ("%a = memref.alloc() {alignment = 4096 : i64} : memref<32xf32>", []),
        ("%a = memref.alloc() : memref<32xvector<4xf32>>", []),
        ("%a = memref.alloc() : memref<0x4xf32>", []),
        ("scf.for %i = %zero to %four step %one { %a = memref.alloc() : memref<32xf32> }", []),
        (
            "%a = memref.alloc() : memref<32xf32>\n"
            "%p = memref.extract_aligned_pointer_as_index %a : memref<32xf32> -> index",
            [],
        ),
        ("%a = memref.alloc() : memref<7x3xi1>", [21]),
        ("%a = memref.alloc() : memref<5xindex>", [40]),
        ("%a = memref.alloc() : memref<5xbf16>", [10]),
        ("%a = memref.alloc() : memref<f64>", [8]),
    ],
)
def test_only_plain_memory_of_known_size_is_moved(
    parse: Callable[[str], Any], body: str, sizes: list[int]
) -> None:
    assert _sizes(parse(f"{HEAD}{body}\nreturn }}")) == sizes


def test_a_buffer_that_is_returned_stays(parse: Callable[[str], Any]) -> None:
    text = """
    func.func @main(%x: memref<32xf32>) -> memref<32xf32> {
      %a = memref.alloc() : memref<32xf32>
      return %a : memref<32xf32>
    }"""
    assert _sizes(parse(text)) == []


def test_memory_stays_in_use_as_long_as_what_was_made_of_it(parse: Callable[[str], Any]) -> None:
    """A reshape, a loop that hands a buffer on, and a choice are all the same memory."""
    text = HEAD + (
        "%a = memref.alloc() : memref<32xf32>\n%b = memref.alloc() : memref<32xf32>\n"
        + _double("%x", "%a")
        + _double("%x", "%b")
        + "%c = scf.for %i = %zero to %four step %one iter_args(%m = %a) -> memref<32xf32> {\n"
        + "scf.yield %b : memref<32xf32> }\n"
        + "%t = arith.constant true\n%d = arith.select %t, %c, %x : memref<32xf32>\n"
        + "%e = memref.expand_shape %d [[0, 1]] output_shape [4, 8] : memref<32xf32> into memref<4x8xf32>\n"
        + "%late = memref.alloc() : memref<32xf32>\n"
        + _double("%x", "%late")
        + "%f = memref.collapse_shape %e [[0, 1]] : memref<4x8xf32> into memref<32xf32>\n"
        + _double("%f", "%y")
        + "return }"
    )
    assert _sizes(parse(text)) == [128, 128, 128]


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 20), st.integers(0, 10)), max_size=12))
def test_no_two_buffers_of_a_slot_are_in_use_at_once(kinds: list[tuple[int, int, int]]) -> None:
    buffers = [_Buffer(None, size, first, first + length, []) for size, first, length in kinds]
    slots = _share(buffers)
    placed = [buffer for slot in slots for buffer in slot.buffers]
    assert sorted(map(id, placed)) == sorted(map(id, buffers))
    for slot in slots:
        assert slot.bytes == max(buffer.bytes for buffer in slot.buffers)
        for one, other in itertools.combinations(slot.buffers, 2):
            assert one.last < other.first or other.last < one.first
    together = max(
        (sum(each.first <= time <= each.last for each in buffers) for time in range(32)), default=0
    )
    assert len(slots) == together  # intervals need no more slots than are in use at once


def test_a_call_allocates_nothing_and_computes_the_same(lower_text: Callable[..., Any]) -> None:
    ir = pytest.importorskip("torch_mlir.ir")
    with ir.Context():
        module = ir.Module.parse(CHAIN)
        spaces = hoist_workspaces(module)
    plain = compile_lowered(lower_text(CHAIN, [LINE], [LINE]))
    moved = compile_lowered(lower_text(str(module), [LINE], [LINE], workspaces=spaces))
    x = torch.randn(32)
    assert torch.equal(moved(x)[0], plain(x)[0])
    assert torch.equal(moved(x)[0], 16 * x)
    assert moved.bind([x]).run().equal(16 * x)
    assert "@malloc" in plain.llvm_module
    assert "@malloc" not in moved.llvm_module
    assert workspaces_of(moved._lowered.module) == spaces  # the record outlives the way to LLVM
