"""A product of two square matrices. Exercises: matmul with sizes that every tile divides."""

import torch
from torch import nn

SIZE = 256


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs() -> list:
    return [torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)]


def get_init_inputs() -> list:
    return []
