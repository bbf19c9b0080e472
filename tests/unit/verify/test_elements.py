import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.verify.elements import bits, gather, physical, pieces, scatter


@st.composite
def _strided(draw):
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    tensor = torch.arange(max(1, int(torch.tensor(shape).prod()))).float()[: int(torch.tensor(shape).prod())]
    tensor = tensor.reshape(shape)
    if shape:
        tensor = tensor.permute(draw(st.permutations(range(len(shape)))))
        if draw(st.booleans()):
            tensor = tensor.unsqueeze(0).expand(draw(st.integers(1, 3)), *tensor.shape)
        if draw(st.booleans()):
            tensor = tensor[..., ::2]
    return tensor


@given(_strided(), st.integers(1, 40))
def test_pieces_walk_every_element_once_and_in_order(tensor, limit):
    other = tensor + 0.5
    flat, offsets = [], []
    for offset, (left, right) in pieces(tensor, other, limit=limit):
        assert left.dim() == 1
        assert len(left) <= limit
        assert torch.equal(left + 0.5, right)
        assert offset == sum(len(piece) for piece in flat)
        flat.append(left)
        offsets.append(offset)
    assert torch.equal(torch.cat(flat), tensor.reshape(-1))


def test_an_expanded_tensor_is_walked_without_being_copied_whole():
    # 2⁴⁰ elements: a copy would not fit in any memory
    huge = torch.zeros(1).expand(1 << 40)
    offset, (piece,) = next(iter(pieces(huge)))
    assert offset == 0
    assert 0 < len(piece) <= 1 << 22


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int8, torch.float16, torch.float32, torch.float64, torch.float8_e4m3fn]
)
def test_bits_are_integers_of_the_same_size_and_place(dtype):
    tensor = torch.tensor([0.0, 1.0, 0.0]).to(dtype)
    words = bits(tensor)
    assert words.element_size() == tensor.element_size()
    assert words.data_ptr() == tensor.data_ptr()
    assert words[0] == 0 != words[1]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_elements_are_two_words(dtype):
    assert bits(torch.zeros(3, dtype=dtype)).shape == (3, 2)


@given(_strided())
def test_what_was_gathered_and_scattered_is_what_was_there(tensor):
    before = tensor.clone()
    words = gather(tensor)
    scatter(tensor, words)
    assert torch.equal(tensor, before)
    assert len(words) == len(tensor.unique())
    scatter(tensor, torch.zeros_like(words))
    assert not tensor.any()


def test_overlapping_windows_give_each_place_once_and_leave_gaps_alone():
    memory = torch.arange(10.0)
    windows = memory.as_strided((3, 2), (3, 1), 1)  # 1 2 . 4 5 . 7 8: no overlap, and gaps
    assert sorted(gather(windows).view(torch.float32).tolist()) == [1, 2, 4, 5, 7, 8]
    windows = memory.as_strided((3, 3), (2, 1), 1)  # 1 2 3 / 3 4 5 / 5 6 7
    assert gather(windows).view(torch.float32).tolist() == [1, 2, 3, 4, 5, 6, 7]
    scatter(windows, torch.zeros(7).view(torch.int32))
    assert memory.tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 8, 9]
    crossing = torch.arange(8.0).as_strided((2, 3), (3, 2))  # 0 2 4 / 3 5 7: strides cross, 1 and 6 are gaps
    assert gather(crossing).view(torch.float32).tolist() == [0, 2, 3, 4, 5, 7]


def test_the_physical_view_shows_memory_and_not_what_is_pending():
    conjugate = torch.tensor([1 + 2j]).conj()
    assert physical(conjugate).tolist() == [1 + 2j]
    leaf = torch.zeros(2, requires_grad=True)
    physical(leaf).fill_(3)
    assert leaf.tolist() == [3, 3]
    assert leaf.is_leaf
