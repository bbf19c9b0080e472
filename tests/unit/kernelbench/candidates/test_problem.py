"""Inputs are new before each call at the same addresses, the same from the same seed, and keep their structure."""

from __future__ import annotations

import pytest
import torch

from kernelmark.kernelbench.candidates.problem import Draws, digest
from torchsched.elements import Element
from torchsched.ingress import parse_input_shapes


def draws(text: str, seed: int = 0, element: Element = Element.F32) -> Draws:
    return Draws(parse_input_shapes(text), element=element, device="cpu", seed=seed)


def test_the_same_seed_draws_the_same_and_another_does_not() -> None:
    one, two = draws("8x4xf32xrnd,4xi64xrnd9,=2.5"), draws("8x4xf32xrnd,4xi64xrnd9,=2.5")
    assert digest(one.base) == digest(two.base) == digest(one.draw(0))
    assert digest(one.base) != digest(one.draw(1))
    assert one.base[2] == 2.5
    assert one.vary


def test_renewed_values_are_new_each_time_and_lie_where_they_lay() -> None:
    made = draws("16x8xf32xrnd,64xbf16xsign,5xi64xrnd100")
    places = [each.data_ptr() for each in made.arguments]
    seen = set()
    for _ in range(20):
        made.renew()
        seen.add(digest(made.arguments))
        assert digest(made.now()) == digest(made.arguments)
        assert [each.data_ptr() for each in made.arguments] == places
        for mine, base in zip(made.arguments, made.base, strict=True):
            assert torch.equal(mine.flatten().sort()[0], base.flatten().sort()[0])
    # Drawn from 32,000 turns each time: once in 170 runs two of 20 are alike.
    assert len(seen) >= 18


def test_what_now_gives_are_other_tensors_and_the_random_state_goes_with_the_values() -> None:
    made = draws("16xf32xrnd")
    made.renew()
    first = torch.rand(3)
    given = made.now()
    assert torch.equal(torch.rand(3), first)
    given[0].zero_()
    assert made.arguments[0].abs().sum() > 0


@pytest.mark.parametrize(
    ("values", "holds"),
    [
        ("triu", lambda x: torch.equal(x, x.triu())),
        ("tril", lambda x: torch.equal(x, x.tril())),
        ("sym", lambda x: torch.equal(x, x.T)),
        ("prob", lambda x: torch.allclose(x.sum(-1), torch.ones(6))),
        ("id", lambda x: torch.equal(x, torch.eye(6))),
        ("0", lambda x: not x.any()),
        ("1", lambda x: bool((x == 1).all())),
    ],
)
def test_structure_is_kept(values: str, holds) -> None:
    made = draws(f"6x6xf32x{values}")
    assert made.vary == (values not in ("id", "0", "1"))
    for _ in range(5):
        made.renew()
        assert holds(made.arguments[0])
        assert digest(made.now()) == digest(made.arguments)


def test_taking_a_seed_puts_its_draw_where_the_arguments_lie() -> None:
    made = draws("8x4xf32xrnd", element=Element.BF16)
    place = made.arguments[0].data_ptr()
    made.take(7)
    assert digest(made.arguments) == digest(made.draw(7))
    assert made.arguments[0].data_ptr() == place


def test_a_digest_sees_every_bit_and_the_form() -> None:
    x = torch.zeros(4, 2)
    assert len({digest([x]), digest([-x]), digest([x.view(2, 4)]), digest([x.int()]), digest([])}) == 5
    assert digest([x.t().contiguous().t()]) == digest([x])
    assert digest([torch.zeros(0)]) != digest([])
