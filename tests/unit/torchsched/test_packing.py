"""A call's memory holds, for each memref, what compiled code reads from it."""

from __future__ import annotations

import ctypes

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import ModelRunError
from torchsched.elements import Element
from torchsched.packing import Slot, Words, require_apart
from torchsched.signature import TensorType

shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


def _words_at(address: int, count: int) -> list[int]:
    return list((ctypes.c_int64 * count).from_address(address))


@given(st.lists(shapes, min_size=1, max_size=5))
def test_each_memref_is_found_through_two_pointers_with_its_sizes_and_strides(
    kinds: list[tuple[int, ...]],
) -> None:
    words = Words([TensorType(shape, Element.F32) for shape in kinds])
    for index in range(len(kinds)):
        words.point(index, 1000 + index)
    for index, (place, shape) in enumerate(zip(_words_at(words.address, len(kinds)), kinds, strict=True)):
        (descriptor,) = _words_at(place, 1)
        rank = len(shape)
        found = _words_at(descriptor, 3 + 2 * rank)
        assert found[:3] == [1000 + index, 1000 + index, 0]
        assert tuple(found[3 : 3 + rank]) == shape
        if all(shape):
            assert tuple(found[3 + rank :]) == torch.empty(shape).stride()


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12), st.booleans()), max_size=6))
def test_overlap_is_found_exactly_where_a_written_element_is_anothers_too(
    spans: list[tuple[int, int, bool]],
) -> None:
    memory = torch.zeros(64)
    named = [(f"t{i}", memory[start : start + length]) for i, (start, length, _) in enumerate(spans)]
    results = [each for each, (_, _, is_result) in zip(named, spans, strict=True) if is_result]
    arguments = [each for each, (_, _, is_result) in zip(named, spans, strict=True) if not is_result]
    sets = [set(range(start, start + length)) for start, length, _ in spans]
    shared = any(
        sets[i] & sets[j] and (spans[i][2] or spans[j][2]) for i in range(len(spans)) for j in range(i)
    )
    if shared:
        with pytest.raises(ModelRunError, match=r"result 't\d' shares memory with 't\d'"):
            require_apart(results, arguments)
    else:
        require_apart(results, arguments)


@pytest.mark.parametrize("element", list(Element))
def test_a_slot_allocates_what_fits_it(element: Element) -> None:
    slot = Slot("x", TensorType((3, 7), element))
    assert slot.fits(slot.empty())
    assert not slot.fits(slot.empty()[:2])
