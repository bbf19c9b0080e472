"""Batch norm of images. Exercises: buffers; in training mode they are written, and are results as well."""

import torch
from torch import nn

BATCH, CHANNELS, HEIGHT, WIDTH = 4, 16, 20, 24


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        # as made, its parameters would make it the identity, and its input pass for its answer
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.bias, -1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs() -> list:
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs() -> list:
    return [CHANNELS]
