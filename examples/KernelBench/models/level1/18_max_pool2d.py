"""The largest value of each window. Exercises: pooling with padding that must not win."""

import torch
from torch import nn

BATCH, CHANNELS, HEIGHT, WIDTH = 2, 8, 33, 35


class Model(nn.Module):
    def __init__(self, kernel: int, stride: int, padding: int) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(kernel, stride=stride, padding=padding)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(x)


def get_inputs() -> list:
    # All negative: a padding of zeros would show.
    return [-torch.rand(BATCH, CHANNELS, HEIGHT, WIDTH) - 0.5]


def get_init_inputs() -> list:
    return [3, 2, 1]
