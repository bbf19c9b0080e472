"""Torch's fast paths of attention and encoder layers in plain operations, as torch-mlir needs them.

Without gradients, ``nn.MultiheadAttention`` and ``nn.TransformerEncoderLayer`` in evaluation mode are one operation
each, which ``torch.compile`` hands on whole. Knows torch and no MLIR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

__all__ = ["fast_paths"]


def fast_paths() -> Mapping[Any, Callable[..., Any]]:
    """Give what each of these operations is made of, for ``run_decompositions``."""
    aten = torch.ops.aten
    return {
        aten._native_multi_head_attention.default: _attention,
        aten._transformer_encoder_layer_fwd.default: _encoder_layer,
    }


def _encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    """Do what ``nn.TransformerEncoderLayer`` does to batch × length × embedding."""

    def first(x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attend(x: torch.Tensor) -> torch.Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return _attention(x, x, x, embed_dim, num_heads, *weights, mask, False, True, mask_type)[0]

    def feed_forward(x: torch.Tensor) -> torch.Tensor:
        hidden = functional.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = functional.gelu(hidden) if use_gelu else functional.relu(hidden)
        return functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attend(first(src))
        return x + feed_forward(second(x))
    x = first(src + attend(src))
    return second(x + feed_forward(x))


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Do what ``nn.MultiheadAttention`` does to batch × length × embedding; the weights are empty unless needed."""
    batch, length, _ = query.shape
    width = embed_dim // num_heads
    parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (
        functional.linear(x, weight, bias).view(batch, x.shape[1], num_heads, width).transpose(1, 2)
        for x, weight, bias in parts
    )
    # as torch does: the queries are scaled before the product
    scores = torch.matmul(q / width**0.5, k.transpose(-2, -1))
    if mask is not None:
        scores = _masked(scores, mask, mask_type)
    weights = scores.softmax(-1)
    joined = torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, embed_dim)
    out = functional.linear(joined, proj_weight, proj_bias)
    if not need_weights:
        return out, out.new_empty((0,))
    return out, weights.mean(1) if average_attn_weights else weights


_OF_ATTENTION, _OF_PADDING = 0, 1
"""Torch's numbers for a mask of length × length, and for one of batch × length; others are of all four sizes."""


def _masked(scores: torch.Tensor, mask: torch.Tensor, mask_type: int | None) -> torch.Tensor:
    if mask_type == _OF_PADDING and mask.dim() == 2:
        mask = mask[:, None, None, :]
    if mask.dtype == torch.bool:
        return scores.masked_fill(mask, float("-inf"))
    return scores + mask
