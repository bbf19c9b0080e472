// c = a · b on the CPU: the loop order i, k, j reads and writes rows.
#include <cstddef>

extern "C" void solve(const float* a, const float* b, float* c, int M, int N, int K) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(M); ++i) {
        float* row = c + i * N;
        for (int j = 0; j < N; ++j) row[j] = 0.0f;
        for (int k = 0; k < K; ++k) {
            const float factor = a[i * K + k];
            const float* other = b + static_cast<std::size_t>(k) * N;
            for (int j = 0; j < N; ++j) row[j] += factor * other[j];
        }
    }
}
