"""A convolution of images, with padding and a bias. Exercises: the direct convolution, NCHW."""

import torch
from torch import nn

BATCH, CHANNELS, FILTERS, HEIGHT, WIDTH, KERNEL = 2, 8, 16, 28, 30, 3


class Model(nn.Module):
    def __init__(self, channels: int, filters: int, kernel: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, filters, kernel, padding=kernel // 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.convolution(x)


def get_inputs() -> list:
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs() -> list:
    return [CHANNELS, FILTERS, KERNEL]
