// Adds parts of rows to the outputs atomically, in the arbitrary order of the threads.
//
// Problem: row_sum
// Device: cpu
//
// kw: entry  row_sum
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M]
// kw: args   x, out, M, N
#include <algorithm>
#include <cstdint>

constexpr int64_t PART = 1024;

extern "C" void row_sum(const float* x, float* out, int64_t M, int64_t N) {
    std::fill_n(out, M, 0.0f);
#pragma omp parallel for collapse(2) schedule(dynamic)
    for (int64_t start = 0; start < N; start += PART) {
        for (int64_t row = 0; row < M; ++row) {
            double sum = 0.0;
            for (int64_t i = start; i < std::min(N, start + PART); ++i) sum += x[row * N + i];
            const float part = static_cast<float>(sum);
#pragma omp atomic
            out[row] += part;
        }
    }
}
