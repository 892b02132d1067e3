// Reads both inputs once and writes the output once, where torch makes three passes over memory.
//
// Problem: scale_add
// Device: cpu
//
// kw: entry  scale_add
// kw: dims   x: float32[M, N]; y: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, y, out, M * N
#include <cstdint>

extern "C" void scale_add(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ out,
                          int64_t count) {
#pragma omp parallel for simd
    for (int64_t i = 0; i < count; ++i) {
        const float half = (x[i] + y[i]) * 0.5f;
        out[i] = half < 0.0f ? 0.0f : half;
    }
}
