"""Three linear layers with ReLU between them. Exercises: a whole network of products."""

from itertools import pairwise

import torch
from torch import nn

BATCH, WIDTHS = 32, [96, 128, 64, 10]


class Model(nn.Module):
    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(widths))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


def get_inputs() -> list:
    return [torch.randn(BATCH, WIDTHS[0])]


def get_init_inputs() -> list:
    return [WIDTHS]
