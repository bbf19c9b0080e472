"""A second draw has the first one's values in another order, with signs where there were none."""

from __future__ import annotations

from typing import Any

import torch

from kernelmark.verify.second_draw import second_draw


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
