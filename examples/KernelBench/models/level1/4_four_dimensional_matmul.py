"""A tensor of four dimensions times one matrix, as a projection of attention heads does.

Exercises: leading dimensions that may be flattened into rows, and an operand that all of them share.
"""

import torch
from torch import nn

BATCH, HEADS, ROWS, INNER, COLUMNS = 2, 4, 32, 48, 64


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bhri,ic->bhrc", a, b)


def get_inputs() -> list:
    return [torch.randn(BATCH, HEADS, ROWS, INNER), torch.randn(INNER, COLUMNS)]


def get_init_inputs() -> list:
    return []
