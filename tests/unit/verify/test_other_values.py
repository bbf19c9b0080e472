from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.verify import InputGuard, StaleGuard
from kernelmark.verify.other_values import permuted, second_draw

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128]


def _random(count=64, dtype=torch.float32, device="cpu"):
    return torch.randn(count, generator=torch.Generator().manual_seed(5)).to(dtype).to(device)


def _sorted(tensor):
    values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return values.double().reshape(-1).sort().values


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*FLOATS, torch.float8_e4m3fn])
def test_scrambling_permutes_values_in_place(dtype, device):
    x = _random(dtype=dtype, device=device)
    before, address = x.clone(), x.data_ptr()
    assert StaleGuard({"x": x}).scramble() == ("inputs['x']",)
    assert x.data_ptr() == address
    assert not torch.equal(x.to(torch.complex128), before.to(torch.complex128))
    assert torch.equal(_sorted(x), _sorted(before))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*FLOATS, torch.float8_e5m2])
def test_nudging_swaps_two_elements_that_are_far_apart(dtype, device):
    x = _random(dtype=dtype, device=device)
    before = x.clone()
    assert StaleGuard((x,)).nudge() == ("inputs[0]",)
    wide, was = x.to(torch.complex128), before.to(torch.complex128)
    changed = (wide != was).nonzero().flatten()
    assert len(changed) == 2
    assert wide[changed[0]] == was[changed[1]]
    assert (wide - was)[changed].abs().max() > was.abs().max() / 2
    assert torch.equal(_sorted(x), _sorted(before))


def test_integers_booleans_and_what_shares_their_memory_are_left_alone():
    packed = torch.arange(8, dtype=torch.int32)
    inputs = (packed, packed.view(torch.float32), torch.tensor([True, False]), torch.arange(3), None, 2.0)
    guard = InputGuard(inputs)
    stale = StaleGuard(inputs)
    assert stale.scramble() == stale.nudge() == ()
    assert guard.changed() == []


def test_a_tensor_named_twice_is_changed_once():
    x = _random()
    assert StaleGuard(((x,), [x, x])).scramble() == ("inputs[0][0]",)


def test_values_that_cannot_differ_are_not_claimed_to():
    same, single, empty = torch.ones(9), torch.ones(1), torch.ones(0)
    stale = StaleGuard((same, single, empty))
    assert stale.scramble() == stale.nudge() == ()
    two = torch.tensor([1.0, 2.0])
    assert StaleGuard(two).scramble() == ("inputs",)
    assert two.tolist() == [2, 1]


def test_a_lone_different_element_among_many_is_found():
    x = torch.zeros(1 << 17)
    x[70_001] = float("nan")
    assert StaleGuard((x,), seed=1).nudge() == ("inputs[0]",)
    assert not x[70_001].isnan()
    assert x.isnan().sum() == 1


def test_the_same_seed_makes_the_same_changes():
    first, second, third = _random(), _random(), _random()
    for tensor, seed in ((first, 3), (second, 3), (third, 4)):
        stale = StaleGuard((tensor,), seed=seed)
        stale.scramble()
        stale.nudge()
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_views_are_changed_through_and_what_they_do_not_show_is_not():
    memory = torch.arange(24.0)
    hidden = memory.clone()
    view = memory.reshape(4, 6)[:, 1:4].t()
    shown = view.reshape(-1).clone()
    assert StaleGuard((view,)).scramble()
    assert torch.equal(view.reshape(-1).sort().values, shown.sort().values)
    outside = torch.ones(24, dtype=torch.bool)
    outside.reshape(4, 6)[:, 1:4] = False
    assert torch.equal(memory[outside], hidden[outside])
    row = torch.arange(5.0)
    expanded = row.expand(3, 5)
    assert StaleGuard((expanded,)).scramble()
    assert row.sort().values.tolist() == [0, 1, 2, 3, 4]
    windows = torch.arange(9.0).unfold(0, 3, 1)
    assert StaleGuard((windows,)).scramble()
    assert StaleGuard((windows,)).nudge()


def test_gradients_and_versions_are_not_disturbed():
    x = _random().requires_grad_()
    y = (x * x).sum()
    guard = InputGuard((x,))
    assert StaleGuard((x,)).scramble()
    guard.restore()
    y.backward()
    assert torch.equal(x.grad, 2 * x.detach())


@given(st.integers(0, 200), st.integers(0, 9))
def test_a_permutation_keeps_every_entry(count, seed):
    words = torch.arange(count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernelmark.verify.other_values._SMALL", 16)
        mixed = permuted(words, torch.Generator().manual_seed(seed))
    assert torch.equal(mixed.sort().values, words)


# --- the faults that this is for --------------------------------------------------------------------------


def _scale(x):
    return x * 2


def _cached_by(fingerprint):
    kept = {}

    def run(x):
        key = fingerprint(x)
        if key not in kept:
            kept[key] = _scale(x)
        return kept[key]

    return run


CHEATS = {
    "address": lambda x: x.data_ptr(),
    "shape": lambda x: tuple(x.shape),
    "sum of the content": lambda x: round(float(x.double().sum()), 6),
    "a sample of the content": lambda x: tuple(x[::97].tolist()),
    "the first elements": lambda x: tuple(x[:8].tolist()),
}


def _answer_when_it_counts(run, x):
    guard, stale = InputGuard((x,)), StaleGuard((x,), seed=11)
    for change in (stale.scramble, stale.nudge):
        change()
        run(x)
        guard.restore()
    return run(x)


@pytest.mark.parametrize("cheat", CHEATS)
def test_an_answer_cached_by_any_of_these_is_found(cheat):
    x = _random(4096)
    assert not torch.equal(_answer_when_it_counts(_cached_by(CHEATS[cheat]), x), _scale(x))


def test_an_honest_implementation_and_an_honest_cache_give_the_right_answer():
    x = _random(4096)
    assert torch.equal(_answer_when_it_counts(_scale, x), _scale(x))
    whole = _cached_by(lambda t: t.numpy().tobytes())
    assert torch.equal(_answer_when_it_counts(whole, x), _scale(x))


# --- a second draw has the first one's values in another order, with signs where there were none ----------


def _ok(*inputs: Any) -> torch.Tensor:
    return inputs[0] * 1


def test_values_are_permuted_and_integers_stay() -> None:
    x, index = torch.randn(5, 6), torch.arange(6)
    drawn, why = second_draw(_ok, (x, [index], 3), seed=1)
    assert drawn is not None
    assert why == ""
    assert not torch.equal(drawn[0], x)
    assert torch.equal(drawn[0].flatten().sort()[0], x.flatten().sort()[0])
    assert drawn[1][0] is index
    assert drawn[2] == 3


def test_numbers_that_are_never_negative_get_signs() -> None:
    x = torch.rand(64, 64)
    drawn, _ = second_draw(_ok, (x,), seed=1)
    assert drawn is not None
    assert 0.3 < float((drawn[0] < 0).float().mean()) < 0.7
    assert torch.equal(drawn[0].abs().flatten().sort()[0], x.flatten().sort()[0])


def test_an_identity_matrix_is_none_any_more() -> None:
    drawn, _ = second_draw(_ok, (torch.eye(16),), seed=1)
    assert drawn is not None
    assert not torch.equal(drawn[0].abs(), torch.eye(16))


def test_where_signs_make_no_sense_only_the_order_changes() -> None:
    x = torch.rand(32, 32) + 0.5
    drawn, _ = second_draw(torch.log, (x,), seed=1)
    assert drawn is not None
    assert bool((drawn[0] > 0).all())
    assert not torch.equal(drawn[0], x)


def test_a_model_that_takes_no_other_values_is_told() -> None:
    def picky(x: torch.Tensor) -> torch.Tensor:
        if not torch.equal(x, torch.arange(8.0)):
            raise ValueError("not these")
        return x

    assert second_draw(picky, (torch.arange(8.0),), seed=1) == (
        None,
        "the model raised ValueError on permuted inputs",
    )
    assert second_draw(lambda x: x / 0, (torch.ones(4, 4),), seed=1)[1].endswith("is not finite")
    assert second_draw(_ok, (torch.arange(4),), seed=1)[0] is None


def test_the_first_draw_is_left_alone() -> None:
    x = torch.rand(8, 8)
    kept = x.clone()

    def writes(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)

    drawn, _ = second_draw(writes, (x,), seed=1)
    assert drawn is not None
    assert torch.equal(x, kept)
    one = torch.ones(1)
    drawn, _ = second_draw(_ok, (one,), seed=1)
    assert drawn is not None
    assert drawn[0].data_ptr() != one.data_ptr()
