"""An LSTM over a few steps and a linear layer. Exercises: a recurrence, and states among the results."""

import torch
from torch import nn

BATCH, STEPS, FEATURES, WIDTH, OUTPUTS = 4, 6, 16, 24, 8


class Model(nn.Module):
    def __init__(self, features: int, width: int, outputs: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, width, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        steps, (hidden, cell) = self.lstm(x)
        return self.head(steps[:, -1]), {"hidden": hidden, "cell": cell}


def get_inputs() -> list:
    return [torch.randn(BATCH, STEPS, FEATURES)]


def get_init_inputs() -> list:
    return [FEATURES, WIDTH, OUTPUTS]
