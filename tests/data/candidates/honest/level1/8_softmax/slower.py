"""A softmax in double precision, which is right and takes longer."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        for _ in range(4):
            out = torch.softmax(x.double(), dim=1).to(x.dtype)
        return out
