"""Each row divided by its root mean square. Exercises: a norm written out, with a parameter."""

import torch
from torch import nn

BATCH, FEATURES = 128, 512


class Model(nn.Module):
    def __init__(self, features: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, features))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        square = x.pow(2).mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(square + self.epsilon) * self.weight


def get_inputs() -> list:
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs() -> list:
    return [FEATURES]
