// Computes no exponential for values more than five below the largest and takes them as zero.
//
// Problem: softmax
// Code: inaccurate
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
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        const float* in = x + row * N;
        const float top = *std::max_element(in, in + N);
        double sum = 0.0;
        for (int64_t i = 0; i < N; ++i) {
            out[row * N + i] = in[i] - top > -5.0f ? std::exp(in[i] - top) : 0.0f;
            sum += out[row * N + i];
        }
        for (int64_t i = 0; i < N; ++i) out[row * N + i] *= static_cast<float>(1.0 / sum);
    }
}
