// Reads past the end of its input and writes the result past the end of its output: NaN over a redzone of NaN.
//
// Problem: gelu
// Code: runtime-error or crash
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
    for (int64_t start = 0; start < count; start += 16) {
        for (int64_t i = start; i < start + 16; ++i) out[i] = 0.5f * x[i] * std::erfc(-0.70710678f * x[i]);
    }
}
