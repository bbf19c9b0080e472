"""Values under a mask replaced, and which are above a limit. Exercises: a boolean input and a boolean result."""

import torch
from torch import nn

BATCH, FEATURES = 48, 256


class Model(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        filled = x.masked_fill(mask, -1.0)
        return filled, filled > 0.25


def get_inputs() -> list:
    return [torch.randn(BATCH, FEATURES), torch.rand(BATCH, FEATURES) < 0.3]


def get_init_inputs() -> list:
    return []
