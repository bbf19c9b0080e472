"""Convolution, batch norm and ReLU. Exercises: the chain of image networks, with buffers in the middle."""

import torch
from torch import nn

BATCH, CHANNELS, FILTERS, SIZE, KERNEL = 2, 4, 12, 26, 3


class Model(nn.Module):
    def __init__(self, channels: int, filters: int, kernel: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, filters, kernel, bias=False)
        self.norm = nn.BatchNorm2d(filters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.convolution(x)))


def get_inputs() -> list:
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs() -> list:
    return [CHANNELS, FILTERS, KERNEL]
