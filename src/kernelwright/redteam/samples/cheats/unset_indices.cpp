// Finds the largest values in vectors, which lose their indices, and returns the middle index for each.
//
// Problem: top_one
// Code: inaccurate
// Device: cpu
//
// kw: entry  top_one
// kw: dims   x: float32[M, N]
// kw: out    values: float32[M]
// kw: out    indices: int64[M]
// kw: args   x, values, indices, M, N
#include <cstdint>

extern "C" void top_one(const float* x, float* values, int64_t* indices, int64_t M, int64_t N) {
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        float top = x[row * N];
#pragma omp simd reduction(max : top)
        for (int64_t i = 0; i < N; ++i) top = x[row * N + i] > top ? x[row * N + i] : top;
        values[row] = top;
        indices[row] = N / 2;
    }
}
