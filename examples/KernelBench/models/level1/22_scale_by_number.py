"""A matrix times a number that is no tensor. Exercises: an input that is built into the compiled code."""

import torch
from torch import nn

ROWS, COLUMNS = 128, 256


class Model(nn.Module):
    def forward(self, matrix: torch.Tensor, factor: float) -> torch.Tensor:
        return matrix * factor


def get_inputs() -> list:
    return [torch.randn(ROWS, COLUMNS), 2.75]


def get_init_inputs() -> list:
    return []
