// c = a · b, one tile of 16 × 16 elements a block, through shared memory.
#include <cuda_runtime.h>

constexpr int kTile = 16;

__global__ void matmul(const float* a, const float* b, float* c, int M, int N, int K) {
    __shared__ float left[kTile][kTile], right[kTile][kTile];
    const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < K; start += kTile) {
        const int k = start + threadIdx.x, l = start + threadIdx.y;
        left[threadIdx.y][threadIdx.x] = row < M && k < K ? a[static_cast<size_t>(row) * K + k] : 0.0f;
        right[threadIdx.y][threadIdx.x] = l < K && column < N ? b[static_cast<size_t>(l) * N + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < kTile; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    if (row < M && column < N) c[static_cast<size_t>(row) * N + column] = sum;
}

extern "C" void solve(const float* a, const float* b, float* c, int M, int N, int K) {
    const dim3 blocks((N + kTile - 1) / kTile, (M + kTile - 1) / kTile);
    matmul<<<blocks, dim3(kTile, kTile)>>>(a, b, c, M, N, K);
}
