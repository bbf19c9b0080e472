"""A convolution of each channel by itself, with stride two. Exercises: groups, and windows that skip."""

import torch
from torch import nn

BATCH, CHANNELS, HEIGHT, WIDTH, KERNEL, STRIDE = 2, 16, 33, 31, 3, 2


class Model(nn.Module):
    def __init__(self, channels: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, kernel, stride=stride, groups=channels, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.convolution(x)


def get_inputs() -> list:
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs() -> list:
    return [CHANNELS, KERNEL, STRIDE]
