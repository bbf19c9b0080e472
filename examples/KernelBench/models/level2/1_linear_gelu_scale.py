"""A linear layer, GELU and a scale. Exercises: elementwise work that can be done on each tile of the product."""

import torch
from torch import nn

BATCH, INNER, FEATURES = 64, 128, 192


class Model(nn.Module):
    def __init__(self, inner: int, features: int, scale: float) -> None:
        super().__init__()
        self.linear = nn.Linear(inner, features)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.linear(x)) * self.scale


def get_inputs() -> list:
    return [torch.randn(BATCH, INNER)]


def get_init_inputs() -> list:
    return [INNER, FEATURES, 0.5]
