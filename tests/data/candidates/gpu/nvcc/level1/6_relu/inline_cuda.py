"""ReLU in inline CUDA C++, built when the file is imported."""

import torch
from torch.utils.cpp_extension import load_inline

DECLARATION = "torch::Tensor relu(torch::Tensor x);"
SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void relu_kernel(const float* x, float* out, long long count) {
    long long place = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (place < count) out[place] = x[place] > 0 ? x[place] : 0;
}

torch::Tensor relu(torch::Tensor x) {
    auto source = x.contiguous();
    auto out = torch::empty_like(source);
    long long count = source.numel();
    relu_kernel<<<(count + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        source.data_ptr<float>(), out.data_ptr<float>(), count);
    return out;
}
"""
built = load_inline("kernelmark_relu_cuda", cpp_sources=DECLARATION, cuda_sources=SOURCE, functions=["relu"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return built.relu(x)
