"""The largest value along a dimension, and its place. Exercises: two results of different types."""

import torch
from torch import nn

BATCH, ROWS, FEATURES = 8, 40, 64


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        largest = x.max(dim=1)
        return largest.values, largest.indices


def get_inputs() -> list:
    return [torch.randn(BATCH, ROWS, FEATURES)]


def get_init_inputs() -> list:
    return []
