"""ReLU in Triton."""

import torch
import triton
import triton.language as tl


@triton.jit
def relu(source, target, count, block: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = places < count
    values = tl.load(source + places, mask=inside, other=0.0)
    tl.store(target + places, tl.maximum(values, 0.0), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), block=1024)
        return out
