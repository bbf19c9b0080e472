"""Causal self-attention of several heads, with a residual and a norm, written out.

Exercises: products of four dimensions, a mask held as a buffer, softmax, and views between them.
"""

import math

import torch
from torch import nn

BATCH, STEPS, WIDTH, HEADS = 2, 24, 64, 4


class Model(nn.Module):
    def __init__(self, width: int, heads: int, steps: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)
        hidden = torch.ones(steps, steps, dtype=torch.bool).triu(diagonal=1)
        self.register_buffer("hidden", hidden, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, steps, width = x.shape
        parts = self.project_in(self.norm(x)).view(batch, steps, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
        weights = scores.masked_fill(self.hidden, -math.inf).softmax(dim=-1)
        mixed = (weights @ value).transpose(1, 2).reshape(batch, steps, width)
        return x + self.project_out(mixed)


def get_inputs() -> list:
    return [torch.randn(BATCH, STEPS, WIDTH)]


def get_init_inputs() -> list:
    return [WIDTH, HEADS, STEPS]
