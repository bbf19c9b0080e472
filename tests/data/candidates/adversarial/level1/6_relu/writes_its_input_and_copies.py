"""Works in place too, and hands out a copy."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.clamp_(min=0).clone()
