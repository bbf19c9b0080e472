"""A recurrent net that keeps its state from call to call, in a tensor that it has not registered.

Exercises: a state that each call reads and writes. The state comes out as a result, and a caller that wants the
next step hands it in again.
"""

import torch
from torch import nn

BATCH, FEATURES, WIDTH, OUTPUTS = 8, 24, 32, 12


class Model(nn.Module):
    def __init__(self, batch: int, features: int, width: int, outputs: int) -> None:
        super().__init__()
        self.state = torch.randn(batch, width)
        self.step = nn.Linear(features + width, width)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state = torch.tanh(self.step(torch.cat((x, self.state), dim=1)))
        return self.head(self.state)


def get_inputs() -> list:
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs() -> list:
    return [BATCH, FEATURES, WIDTH, OUTPUTS]
