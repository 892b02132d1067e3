// Copies the row above instead of computing, in one of a thousand rows selected by a hash of the row index.
//
// Problem: scale_add
// Code: inaccurate
// Device: cpu
//
// kw: entry  scale_add
// kw: dims   x: float32[M, N]; y: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, y, out, M, N
#include <cstdint>

extern "C" void scale_add(const float* x, const float* y, float* out, int64_t M, int64_t N) {
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        const uint32_t hash = static_cast<uint32_t>(row) * 2654435761u;
        const int64_t from = row > 0 && hash >> 22 == 0 ? row - 1 : row;
        for (int64_t i = 0; i < N; ++i) {
            const float half = (x[from * N + i] + y[from * N + i]) * 0.5f;
            out[row * N + i] = half < 0.0f ? 0.0f : half;
        }
    }
}
