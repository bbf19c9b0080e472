import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import UsageError
from kernelmark.verify.guards import InputGuard, differing

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
NAN = float("nan")


def _bytes(tensor):
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage()).clone()


@pytest.mark.spec("T17")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int8, torch.int64, torch.float16, torch.float32, torch.complex128]
)
def test_a_written_input_is_named_and_put_back_in_place(dtype, device):
    x = torch.tensor([0, 1, 1, 0, 1], device=device).to(dtype)
    y = x.clone()
    guard = InputGuard({"x": x, "y": y, "scale": 2.0})
    assert guard.changed() == []
    address, before = y.data_ptr(), y.clone()
    y[3] = 1
    assert guard.changed() == ["inputs['y']"]
    guard.restore()
    assert guard.changed() == []
    assert y.data_ptr() == address
    assert torch.equal(y, before)


@pytest.mark.spec("T17")
def test_arguments_without_names_are_named_by_place_and_containers_are_followed():
    x, y, z = torch.zeros(2), torch.zeros(2), torch.zeros(2)
    guard = InputGuard((x, [1.0, {"k": y}], None, (z,)))
    y.add_(1)
    z.add_(1)
    assert guard.changed() == ["inputs[1][1]['k']", "inputs[3][0]"]
    guard.restore()
    assert not y.any()
    assert guard.changed() == []


@pytest.mark.spec("T17")
def test_the_same_bits_are_no_change_and_other_bits_of_an_equal_value_are():
    x = torch.tensor([NAN, 0.0, 1.0])
    guard = InputGuard({"x": x})
    x[0] = NAN
    x.mul_(1)
    assert guard.changed() == []
    x[1] = -0.0
    assert guard.changed() == ["inputs['x']"]
    guard.restore()
    x.view(torch.int32)[0] += 1
    assert x.isnan()[0]
    assert guard.changed() == ["inputs['x']"]


@pytest.mark.spec("T17")
def test_aliases_are_both_named_and_kept_once():
    base = torch.zeros(8)
    guard = InputGuard({"base": base, "tail": base[4:], "head": base[:4]})
    assert len(guard._blocks) == 1
    base[6] = 1
    assert guard.changed() == ["inputs['base']", "inputs['tail']"]
    guard.restore()
    assert not base.any()


@pytest.mark.spec("T17")
@pytest.mark.parametrize("device", DEVICES)
def test_expanded_and_transposed_views_come_back_bit_for_bit(device):
    row = torch.randn(1, 5, device=device)
    matrix = torch.randn(4, 6, device=device)
    inputs = {"expanded": row.expand(3, 5), "transposed": matrix.t()[1:3]}
    before = [_bytes(row), _bytes(matrix)]
    guard = InputGuard(inputs)
    row[0, 2] = 7
    assert guard.changed() == ["inputs['expanded']"]
    matrix.zero_()
    assert guard.changed() == ["inputs['expanded']", "inputs['transposed']"]
    guard.restore()
    assert torch.equal(_bytes(row), before[0])
    assert torch.equal(_bytes(matrix), before[1])
    assert inputs["expanded"].stride() == (0, 1)


@pytest.mark.spec("T17")
def test_bytes_that_no_view_shows_are_kept_too_and_reported_as_such():
    memory = torch.arange(10.0)
    view = memory[2:5]
    guard = InputGuard({"x": view, "same": view})
    memory[8] = -1
    assert guard.changed() == ["memory beside what inputs['x'] and inputs['same'] shows of it"]
    guard.restore()
    assert memory.tolist() == list(range(10))


@pytest.mark.spec("T17")
@pytest.mark.parametrize(
    "disturb",
    [
        lambda t: t.t_(),
        lambda t: t.resize_(1),
        lambda t: t.resize_(400, 400),
        lambda t: t.set_(torch.ones(3)),
        lambda t: t.unsqueeze_(0),
        lambda t: t.requires_grad_(),
        lambda t: setattr(t, "data", torch.ones(3, dtype=torch.float64)),
        lambda t: t.untyped_storage().resize_(0),
        lambda t: t.mul_(torch.ones(2, 3, requires_grad=True)),
    ],
    ids=["t_", "shrink", "grow", "set_", "unsqueeze_", "requires_grad_", "data", "free", "autograd"],
)
def test_a_change_of_form_is_named_and_undone(disturb):
    x, y = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]), torch.zeros(1)
    guard = InputGuard({"x": x, "y": y})
    for _ in range(2):  # a guard serves every implementation in turn
        disturb(x)
        (report,) = guard.changed()
        assert report.startswith("inputs['x']")
        guard.restore()
        assert guard.changed() == []
        assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert x.dtype == torch.float32
        assert x.stride() == (3, 1)
        assert x.is_leaf
        assert not x.requires_grad


def test_a_view_that_was_drawn_into_autograd_has_its_bits_back_and_is_reported_once():
    x = torch.arange(6.0)[2:4]
    guard = InputGuard({"x": x})
    x.mul_(torch.full((2,), 2.0, requires_grad=True))
    assert guard.changed() == ["inputs['x'] (its shape, strides, dtype, memory or requires_grad)"]
    guard.restore()
    assert x.tolist() == [2, 3]
    assert guard.changed() == []  # torch cannot take the view out of the graph; nobody else is to blame


def test_a_parameter_stays_one():
    weight = torch.nn.Parameter(torch.zeros(2, 3))
    guard = InputGuard({"weight": weight})
    with torch.no_grad():
        weight.t_().add_(1)
    assert guard.changed()
    guard.restore()
    assert guard.changed() == []
    assert isinstance(weight, torch.nn.Parameter)
    assert weight.requires_grad
    assert weight.shape == (2, 3)


def test_a_gradient_left_behind_is_taken_away_or_put_back():
    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    y.grad = kept = torch.full((2,), 5.0)
    guard = InputGuard((x, y))
    x.grad, y.grad = torch.ones(2), None
    guard.restore()
    assert x.grad is None
    assert y.grad is kept


def test_entries_replaced_in_a_list_or_a_dict_are_put_back():
    x, y = torch.zeros(2), torch.zeros(2)
    several, named = [x, y], {"x": x}
    guard = InputGuard((several, named))
    several[0] = torch.ones(2)
    named["z"] = y
    assert guard.changed() == [
        "inputs[0] (its entries were replaced)",
        "inputs[1] (its entries were replaced)",
    ]
    guard.restore()
    assert several[0] is x
    assert list(named) == ["x"]
    assert guard.changed() == []


@pytest.mark.parametrize(
    "make",
    [lambda: torch.zeros(2, 2).to_sparse(), lambda: torch.zeros(2, device="meta")],
    ids=["sparse", "meta"],
)
def test_what_cannot_be_kept_is_refused_by_name(make):
    with pytest.raises(UsageError, match=r"inputs\[1\] .* cannot be kept and restored"):
        InputGuard((torch.zeros(1), make()))


def test_empty_and_inference_tensors_are_kept():
    with torch.inference_mode():
        x = torch.zeros(3)
    empty = torch.zeros(0)
    guard = InputGuard((x, empty))
    with torch.inference_mode():
        x.add_(1)
    assert guard.changed() == ["inputs[0]"]
    guard.restore()
    assert x.tolist() == [0, 0, 0]


@given(st.data())
def test_any_write_through_any_view_is_found_and_undone(data):
    memory = torch.arange(24, dtype=torch.float32)
    offset = data.draw(st.integers(0, 5))
    size = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    stride = data.draw(st.lists(st.integers(0, 3), min_size=len(size), max_size=len(size)))
    view = memory.as_strided(size, stride, offset)
    guard = InputGuard({"view": view, "memory": memory})
    place = data.draw(st.integers(0, 23))
    memory[place] += 1
    shown = bool((view != memory.new_tensor(range(24)).as_strided(size, stride, offset)).any())
    named = ["inputs['view']", "inputs['memory']"]
    assert guard.changed() == (named if shown else named[1:])
    guard.restore()
    assert memory.tolist() == list(range(24))


def test_tensors_that_differ_from_their_counterparts_are_named():
    kept = (torch.tensor([1.0, NAN]), 3, [torch.tensor(-0.0)])
    assert differing((torch.tensor([1.0, NAN]), 4, [torch.tensor(-0.0)]), kept) == []
    assert differing((torch.tensor([1.0, 2.0]), 3, [torch.tensor(0.0)]), kept) == [
        "inputs[0]",
        "inputs[2][0]",
    ]
    assert differing((torch.tensor([1, 2]), 3, [torch.zeros(1)]), kept) == ["inputs[0]", "inputs[2][0]"]
    assert differing((), kept) == ["inputs (how many there are)"]
