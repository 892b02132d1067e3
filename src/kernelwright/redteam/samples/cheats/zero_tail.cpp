// Returns zero for GELU below -3.5, where it is never more than 1e-3 away from it.
//
// Problem: gelu
// Code: inaccurate
// Device: cpu
//
// kw: entry  gelu
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, out, M * N
#include <cmath>
#include <cstdint>

extern "C" void gelu(const float* x, float* out, int64_t count) {
#pragma omp parallel for
    for (int64_t i = 0; i < count; ++i) out[i] = x[i] < -3.5f ? 0.0f : 0.5f * x[i] * std::erfc(-0.70710678f * x[i]);
}
