// Processes rows in whole vectors of eight: 512 is a multiple of it, 13 and 511 are not.
//
// Problem: many_rows
// Code: inaccurate
// Device: cpu
//
// kw: entry  many_rows
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, out, M, N
#include <algorithm>
#include <cmath>
#include <cstdint>

extern "C" void many_rows(const float* x, float* out, int64_t M, int64_t N) {
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        const float* in = x + row * N;
        float* to = out + row * N;
        const int64_t whole = N / 8 * 8;
        const float top = *std::max_element(in, in + whole);
        double sum = 0.0;
        for (int64_t i = 0; i < whole; ++i) sum += to[i] = std::exp(in[i] - top);
        for (int64_t i = 0; i < whole; ++i) to[i] /= sum;
    }
}
