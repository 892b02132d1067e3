// A single short loop over 64 numbers, far less work than the call itself.
//
// Problem: tiny
// Device: cpu
//
// kw: entry  tiny
// kw: dims   x: float32[N]; y: float32[N]
// kw: out    out: float32[N]
// kw: args   x, y, out, N
#include <cmath>
#include <cstdint>

extern "C" void tiny(const float* x, const float* y, float* out, int64_t N) {
    for (int64_t i = 0; i < N; ++i) out[i] = std::tanh(x[i] * y[i]) + x[i];
}
