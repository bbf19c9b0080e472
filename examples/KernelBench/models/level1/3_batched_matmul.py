"""One product of matrices for each entry of a batch. Exercises: three dimensions, no operand shared."""

import torch
from torch import nn

BATCH, ROWS, INNER, COLUMNS = 8, 64, 48, 96


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.bmm(a, b)


def get_inputs() -> list:
    return [torch.randn(BATCH, ROWS, INNER), torch.randn(BATCH, INNER, COLUMNS)]


def get_init_inputs() -> list:
    return []
