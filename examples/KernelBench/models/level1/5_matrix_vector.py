"""A matrix times a vector. Exercises: a product that is bound by memory, and a result of one dimension."""

import torch
from torch import nn

ROWS, COLUMNS = 512, 1024


class Model(nn.Module):
    def forward(self, matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
        return matrix @ vector


def get_inputs() -> list:
    return [torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS)]


def get_init_inputs() -> list:
    return []
