"""A linear layer, group norm and a clamp. Exercises: a norm over parts of a row, and views in between."""

import torch
from torch import nn

BATCH, INNER, FEATURES, GROUPS = 32, 64, 96, 8


class Model(nn.Module):
    def __init__(self, inner: int, features: int, groups: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inner, features)
        self.norm = nn.GroupNorm(groups, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clamp(self.norm(self.linear(x)), -1.0, 1.0)


def get_inputs() -> list:
    return [torch.randn(BATCH, INNER)]


def get_init_inputs() -> list:
    return [INNER, FEATURES, GROUPS]
