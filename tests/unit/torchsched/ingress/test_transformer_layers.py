"""Torch's fast paths taken apart: each gives what torch's own operation gives."""

from __future__ import annotations

import itertools

import pytest
import torch

from torchsched.ingress.transformer_layers import fast_paths

BATCH, LENGTH, WIDTH, HEADS, HIDDEN = 3, 5, 8, 2, 12
ATTENTION = torch.ops.aten._native_multi_head_attention.default
LAYER = torch.ops.aten._transformer_encoder_layer_fwd.default


def _attention_weights() -> tuple[torch.Tensor, ...]:
    sizes = ((3 * WIDTH, WIDTH), (3 * WIDTH,), (WIDTH, WIDTH), (WIDTH,))
    return tuple(torch.randn(size) for size in sizes)


def _mask(kind: int | None) -> torch.Tensor | None:
    """Give a mask of torch's ``kind`` that leaves each query something to look at."""
    if kind is None:
        return None
    size = {0: (LENGTH, LENGTH), 1: (BATCH, LENGTH), 2: (BATCH, HEADS, LENGTH, LENGTH)}[kind]
    mask = torch.rand(size) < 0.4
    mask[..., 0] = False
    return mask


@pytest.mark.parametrize("kind", [None, 0, 1, 2])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("need", "average"), [(False, True), (True, True), (True, False)])
def test_attention(kind: int | None, shared: bool, need: bool, average: bool) -> None:
    torch.manual_seed(0)
    q = torch.randn(BATCH, LENGTH, WIDTH)
    k, v = (q, q) if shared else (torch.randn_like(q), torch.randn_like(q))
    arguments = (q, k, v, WIDTH, HEADS, *_attention_weights(), _mask(kind), need, average, kind)
    expected = ATTENTION(*arguments)
    got = fast_paths()[ATTENTION](*arguments)
    torch.testing.assert_close(got[0], expected[0])
    if need:
        torch.testing.assert_close(got[1], expected[1])


@pytest.mark.parametrize("kind", [None, 0, 1, 2])
@pytest.mark.parametrize(("gelu", "norm_first"), list(itertools.product([False, True], repeat=2)))
def test_an_encoder_layer(kind: int | None, gelu: bool, norm_first: bool) -> None:
    torch.manual_seed(0)
    norms = [torch.randn(WIDTH) for _ in range(4)]
    feed_forward = (
        torch.randn(HIDDEN, WIDTH),
        torch.randn(HIDDEN),
        torch.randn(WIDTH, HIDDEN),
        torch.randn(WIDTH),
    )
    src = torch.randn(BATCH, LENGTH, WIDTH)
    arguments = (src, WIDTH, HEADS, *_attention_weights(), gelu, norm_first, 1e-5, *norms, *feed_forward)
    mask = _mask(kind)
    expected = LAYER(*arguments, mask, kind)
    got = fast_paths()[LAYER](*arguments, mask, kind)
    # two norms, each dividing by a width that may be small: 1.7e-5 was seen
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
