// Tiles of 8 rows by 64 columns whose sums stay in registers over K, with shorter tiles at the edges.
//
// Problem: matmul
// Device: cpu
//
// kw: entry  matmul
// kw: dims   a: float32[M, K]; b: float32[K, N]
// kw: out    out: float32[M, N]
// kw: args   a, b, out, M, N, K
#include <algorithm>
#include <cstdint>

constexpr int64_t ROWS = 8, COLUMNS = 64;

extern "C" void matmul(const float* a, const float* b, float* out, int64_t M, int64_t N, int64_t K) {
#pragma omp parallel for collapse(2)
    for (int64_t top = 0; top < M; top += ROWS) {
        for (int64_t left = 0; left < N; left += COLUMNS) {
            const int64_t rows = std::min(ROWS, M - top), columns = std::min(COLUMNS, N - left);
            float sum[ROWS][COLUMNS] = {};
            for (int64_t k = 0; k < K; ++k) {
                for (int64_t row = 0; row < rows; ++row) {
                    const float factor = a[(top + row) * K + k];
                    for (int64_t i = 0; i < columns; ++i) sum[row][i] += factor * b[k * N + left + i];
                }
            }
            for (int64_t row = 0; row < rows; ++row) {
                std::copy_n(sum[row], columns, out + (top + row) * N + left);
            }
        }
    }
}
