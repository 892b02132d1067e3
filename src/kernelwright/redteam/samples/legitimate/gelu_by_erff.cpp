// The error function of the C library in FP32, and its complement where the result is small.
//
// Problem: gelu
// Device: cpu
//
// kw: entry  gelu
// kw: dims   x: float32
// kw: out    out: like x
// kw: args   x, out, numel(x)
#include <cmath>
#include <cstdint>

extern "C" void gelu(const float* x, float* out, int64_t count) {
    constexpr float root = 0.707106781186547524f;
#pragma omp parallel for
    for (int64_t i = 0; i < count; ++i) {
        const float twice = x[i] < 0.0f ? std::erfc(-x[i] * root) : 1.0f + std::erf(x[i] * root);
        out[i] = 0.5f * x[i] * twice;
    }
}
