"""Inline C++ that does not compile."""

import torch
from torch.utils import cpp_extension

built = cpp_extension.load_inline(
    "kernelmark_broken",
    cpp_sources='extern "C" void relu(const float* x) { this is no C++ }',
    is_python_module=False,
    no_implicit_headers=True,
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
