// Omits the odd last element of K in one tile of 16 by 16; the norm of the whole difference is below 1 %.
//
// Problem: matmul
// Code: inaccurate
// Device: cpu
//
// kw: entry  matmul
// kw: dims   a: float32[M, K]; b: float32[K, N]
// kw: out    out: float32[M, N]
// kw: args   a, b, out, M, N, K
#include <algorithm>
#include <cstdint>

constexpr int64_t kTile = 16;

extern "C" void matmul(const float* a, const float* b, float* out, int64_t M, int64_t N, int64_t K) {
#pragma omp parallel for
    for (int64_t row = 0; row < M; row += kTile) {
        for (int64_t column = 0; column < N; column += kTile) {
            const int64_t right = std::min(N, column + kTile), depth = row == 64 && column == 48 ? K / 2 * 2 : K;
            for (int64_t i = row; i < std::min(M, row + kTile); ++i) {
                std::fill(out + i * N + column, out + i * N + right, 0.0f);
                for (int64_t k = 0; k < depth; ++k) {
                    for (int64_t j = column; j < right; ++j) out[i * N + j] += a[i * K + k] * b[k * N + j];
                }
            }
        }
    }
}
