// Approximates tanh by a quotient of two polynomials, 1e-3 off at worst.
//
// Problem: tiny
// Code: inaccurate
// Device: cpu
//
// kw: entry  tiny
// kw: dims   x: float32[N]; y: float32[N]
// kw: out    out: float32[N]
// kw: args   x, y, out, N
#include <algorithm>
#include <cstdint>

extern "C" void tiny(const float* x, const float* y, float* out, int64_t N) {
    for (int64_t i = 0; i < N; ++i) {
        const float z = std::clamp(x[i] * y[i], -3.64f, 3.64f), s = z * z;
        const float above = z * (945.0f + s * (105.0f + s));
        const float below = 945.0f + s * (420.0f + s * 15.0f);
        out[i] = above / below + x[i];
    }
}
