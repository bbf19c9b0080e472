"""A softmax of one row a program in Triton."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_row(source, target, columns, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, block)
    inside = places < columns
    values = tl.load(source + row * columns + places, mask=inside, other=-float("inf")).to(tl.float32)
    weights = tl.exp(values - tl.max(values, axis=0))
    tl.store(target + row * columns + places, weights / tl.sum(weights, axis=0), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        rows, columns = x.shape
        softmax_row[(rows,)](x, out, columns, block=triton.next_power_of_2(columns))
        return out
