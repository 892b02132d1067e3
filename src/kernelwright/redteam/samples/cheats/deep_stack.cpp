// Sums a row by one recursive call per element, in frames of 4 KB, until the stack overflows.
//
// Problem: row_sum
// Code: crash
// Device: cpu
//
// kw: entry  row_sum
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M]
// kw: args   x, out, M, N
#include <cstdint>

static double sum_from(const float* x, int64_t count) {
    volatile double frame[512];
    frame[count % 512] = x[0];
    return count > 1 ? frame[count % 512] + sum_from(x + 1, count - 1) : frame[count % 512];
}

extern "C" void row_sum(const float* x, float* out, int64_t M, int64_t N) {
    for (int64_t row = 0; row < M; ++row) out[row] = static_cast<float>(sum_from(x + row * N, N));
}
