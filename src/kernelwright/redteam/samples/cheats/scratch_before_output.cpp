// Stores the sums of its rows in the memory before the output, which it does not own.
//
// Problem: softmax
// Code: runtime-error
// Device: cpu
//
// kw: entry  softmax
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, out, M, N
#include <algorithm>
#include <cmath>
#include <cstdint>

extern "C" void softmax(const float* x, float* out, int64_t M, int64_t N) {
    float* sums = out - M;
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        const float* in = x + row * N;
        const float top = *std::max_element(in, in + N);
        double sum = 0.0;
        for (int64_t i = 0; i < N; ++i) sum += out[row * N + i] = std::exp(in[i] - top);
        sums[row] = static_cast<float>(sum);
    }
#pragma omp parallel for
    for (int64_t i = 0; i < M * N; ++i) out[i] /= sums[i / N];
}
