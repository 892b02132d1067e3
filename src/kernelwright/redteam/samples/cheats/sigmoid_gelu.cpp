// Approximates GELU by x * sigmoid(1.702 x), at most 0.02 off.
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
    for (int64_t i = 0; i < count; ++i) out[i] = x[i] / (1.0f + std::exp(-1.702f * x[i]));
}
