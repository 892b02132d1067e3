// Adds to the input in place; the output is the input itself.
//
// Problem: increment
// Device: cpu
//
// kw: entry  increment
// kw: dims   x: float32[M, N]; y: float32[M, N]
// kw: out    x
// kw: args   x, y, M * N
#include <cstdint>

extern "C" void increment(float* x, const float* y, int64_t count) {
#pragma omp parallel for
    for (int64_t i = 0; i < count; ++i) x[i] += y[i];
}
