// Softmax over rows, one block a row. Pointers that are not const are outputs.
#include <cuda_runtime.h>

#include <math_constants.h>

constexpr int kThreads = 256;

template <typename Combine>
__device__ float reduce(float value, float* shared, Combine combine) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + half]);
        __syncthreads();
    }
    const float result = shared[0];
    __syncthreads();
    return result;
}

__global__ void softmax(const float* x, float* out, int columns) {
    __shared__ float shared[kThreads];
    const float* from = x + static_cast<size_t>(blockIdx.x) * columns;
    float* to = out + static_cast<size_t>(blockIdx.x) * columns;
    float largest = -CUDART_INF_F;
    for (int i = threadIdx.x; i < columns; i += kThreads) largest = fmaxf(largest, from[i]);
    largest = reduce(largest, shared, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += kThreads) sum += expf(from[i] - largest);
    sum = reduce(sum, shared, [](float a, float b) { return a + b; });
    for (int i = threadIdx.x; i < columns; i += kThreads) to[i] = expf(from[i] - largest) / sum;
}

extern "C" void solve(const float* x, float* out, int M, int N) { softmax<<<M, kThreads>>>(x, out, N); }
