// Stores NaN for inputs beyond six, for which its error function is not defined.
//
// Problem: gelu
// Code: not-finite
// Device: cpu
//
// kw: entry  gelu
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, out, M * N
#include <cmath>
#include <cstdint>
#include <limits>

extern "C" void gelu(const float* x, float* out, int64_t count) {
#pragma omp parallel for
    for (int64_t i = 0; i < count; ++i) {
        const float inside = 0.5f * x[i] * std::erfc(-0.70710678f * x[i]);
        out[i] = std::fabs(x[i]) > 6.0f ? std::numeric_limits<float>::quiet_NaN() : inside;
    }
}
