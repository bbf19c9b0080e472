"""Computes the first half of the rows."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        out = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
        half = a.shape[0] // 2
        torch.mm(a[:half], b, out=out[:half])
        return out
