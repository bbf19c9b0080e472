"""A product of two rectangular matrices. Exercises: matmul with sizes that no tile divides."""

import torch
from torch import nn

ROWS, INNER, COLUMNS = 101, 149, 211


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)


def get_inputs() -> list:
    return [torch.randn(ROWS, INNER), torch.randn(INNER, COLUMNS)]


def get_init_inputs() -> list:
    return []
