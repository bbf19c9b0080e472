import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import UsageError
from kernelmark.verify import apart_from, poison, untouched, unwritten
from kernelmark.verify.memory import MARKS, bits, gather, mark, physical, pieces, scatter


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


# --- poison ---------------------------------------------------------------------------------------------

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
    torch.float4_e2m1fn_x2,
]


def _two_rounds(outputs, write):
    marks = []
    for which in (0, 1):
        poison(outputs, which)
        write()
        marks.append(untouched(outputs, which))
    return list(unwritten(*marks))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_nobody_wrote_holds_both_poisons(dtype, device):
    out = torch.zeros(2, 3, dtype=torch.uint8, device=device)
    out = out.view(dtype) if dtype.itemsize == 1 else out.to(dtype)
    assert _two_rounds({"out": out}, lambda: None) == [
        "outputs['out']: 6 of 6 elements were never written, the first at [0, 0]"
    ]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.complex64, torch.float8_e5m2])
def test_the_first_poison_of_a_float_is_a_nan_and_the_second_a_large_negative_number(dtype):
    out = torch.zeros(3, dtype=dtype)
    poison(out, 0)
    assert out.to(torch.complex64).isnan().all()
    poison(out, 1)
    parts = torch.view_as_real(out) if out.is_complex() else out
    assert (parts.double() < -0.7 * torch.finfo(parts.dtype).max).all()
    assert parts.double().isfinite().all()


@pytest.mark.spec("T26")
@pytest.mark.parametrize("device", DEVICES)
def test_an_output_of_which_a_part_is_never_written_is_found(device):
    out = torch.empty(4, 5, device=device)

    def write():
        out[:3] = 1.5

    assert _two_rounds((out,), write) == [
        "outputs[0]: 5 of 20 elements were never written, the first at [3, 0]"
    ]


@pytest.mark.spec("T26")
def test_memory_that_holds_the_right_answer_already_does_not_pass():
    out = torch.tensor([1.0, 2.0, 3.0])
    assert _two_rounds(out, lambda: None) != []
    poison(out, 0)
    assert out.isnan().all()


def test_an_answer_that_holds_one_poison_by_right_is_written():
    flags = torch.zeros(4, dtype=torch.bool)
    numbers = torch.zeros(4, dtype=torch.int32)

    def write():
        flags[:] = torch.tensor([True, False, True, False])
        numbers[:] = torch.tensor([0x5A5A5A5A, ~0x5A5A5A5A, 0, 1])

    assert _two_rounds((flags, numbers), write) == []


def test_a_complex_element_of_which_one_part_was_written_is_written():
    out = torch.zeros(2, dtype=torch.complex64)

    def write():
        torch.view_as_real(out)[1, 0] = 1

    (found,) = _two_rounds((out,), write)
    assert found.startswith("outputs[0]: 1 of 2 elements")


def test_poison_keeps_to_what_a_view_shows():
    memory = torch.zeros(6, 2)
    poison(memory.t()[0, 1:3], 0)
    assert memory.isnan().nonzero().tolist() == [[1, 0], [2, 0]]
    row = torch.zeros(1, 3)
    poison(row.expand(4, 3), 1)
    assert (row < -1e38).all()
    windows = torch.zeros(8)
    poison(windows.unfold(0, 2, 3), 0)
    assert windows.isnan().tolist() == [True, True, False, True, True, False, True, True]


def test_poison_leaves_autograd_alone():
    out = torch.zeros(2, requires_grad=True)
    poison(out, 0)
    assert out.is_leaf
    assert out.isnan().all()


def test_only_two_poisons_exist_and_only_plain_tensors_take_them():
    with pytest.raises(UsageError, match="the two are 0 and 1"):
        poison(torch.zeros(1), 2)
    with pytest.raises(UsageError, match="the two are 0 and 1"):
        untouched(torch.zeros(1, dtype=torch.bool), -1)
    with pytest.raises(UsageError, match="cannot be poisoned"):
        poison({"out": torch.zeros(2, 2).to_sparse()}, 0)
    poison((None, 3, torch.zeros(0)), 0)


def test_tensors_that_share_memory_with_what_is_kept_are_left_out():
    x, fresh = torch.zeros(4), torch.zeros(4)
    found = apart_from((x[1:], {"y": fresh}, None, torch.zeros(2, 2).to_sparse()), (x, "text"))
    assert len(found) == 1
    assert found[0] is fresh


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8])
def test_marks_are_told_apart_and_none_is_what_memory_holds_by_itself(dtype):
    marks = [int(mark(dtype, which, number)) for which in (0, 1) for number in range(MARKS)]
    assert len(set(marks)) == len(marks)
    assert not {0, 1, -1, -2} & set(marks)
    if dtype.is_floating_point:
        assert all(mark(dtype, 0, number).view(dtype).isnan() for number in range(MARKS))
        assert all(-float("inf") < mark(dtype, 1, number).view(dtype) < 0 for number in range(MARKS))
