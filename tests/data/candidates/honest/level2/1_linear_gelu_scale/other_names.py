"""Holds the same weights under names of its own, made in the same order from the same seed."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, inner, features, scale):
        super().__init__()
        layer = torch.nn.Linear(inner, features)
        self.weight, self.bias = layer.weight, layer.bias
        self.scale = scale

    def forward(self, x):
        return torch.nn.functional.gelu(torch.nn.functional.linear(x, self.weight, self.bias)) * self.scale
