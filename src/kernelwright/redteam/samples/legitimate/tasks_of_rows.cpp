// One OpenMP task for every 16 rows; it waits for all of them.
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

static void multiply(const float* a, const float* b, float* out, int64_t rows, int64_t N, int64_t K) {
    std::fill_n(out, rows * N, 0.0f);
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t k = 0; k < K; ++k) {
            for (int64_t i = 0; i < N; ++i) out[row * N + i] += a[row * K + k] * b[k * N + i];
        }
    }
}

extern "C" void matmul(const float* a, const float* b, float* out, int64_t M, int64_t N, int64_t K) {
#pragma omp parallel
#pragma omp single
    {
        for (int64_t top = 0; top < M; top += 16) {
#pragma omp task
            multiply(a + top * K, b, out + top * N, std::min<int64_t>(16, M - top), N, K);
        }
#pragma omp taskwait
    }
}
