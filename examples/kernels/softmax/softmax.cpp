// Softmax over rows, on the CPU. Pointers that are not const are outputs.
#include <algorithm>
#include <cmath>
#include <cstddef>

extern "C" void solve(const float* x, float* out, int M, int N) {
    for (int row = 0; row < M; ++row) {
        const float* from = x + static_cast<std::size_t>(row) * N;
        float* to = out + static_cast<std::size_t>(row) * N;
        const float largest = *std::max_element(from, from + N);
        float sum = 0.0f;
        for (int column = 0; column < N; ++column) {
            to[column] = std::exp(from[column] - largest);
            sum += to[column];
        }
        for (int column = 0; column < N; ++column) to[column] /= sum;
    }
}
