// Throws in a parallel loop, where it cannot be caught.
//
// Problem: softmax
// Code: crash
// Device: cpu
//
// kw: entry  softmax
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, out, M
#include <cstdint>
#include <stdexcept>

extern "C" void softmax(const float* x, float* out, int64_t M) {
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        if (row == M / 2) throw std::runtime_error("a row that it does not like");
        out[row] = x[row];
    }
}
