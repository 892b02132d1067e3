// Computes the variance as mean of squares minus square of the mean: one pass, and rows far from zero cancel.
//
// Problem: layer_norm
// Code: inaccurate
// Device: cpu
//
// kw: entry  layer_norm
// kw: dims   x: float32[M, N]; norm.weight: float32[N]; norm.bias: float32[N]
// kw: out    out: float32[M, N]
// kw: args   x, norm.weight, norm.bias, out, M, N
#include <algorithm>
#include <cmath>
#include <cstdint>

extern "C" void layer_norm(const float* x, const float* weight, const float* bias, float* out, int64_t M, int64_t N) {
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        const float* in = x + row * N;
        float sum = 0.0f, squares = 0.0f;
#pragma omp simd reduction(+ : sum, squares)
        for (int64_t i = 0; i < N; ++i) {
            sum += in[i];
            squares += in[i] * in[i];
        }
        const float mean = sum / N, scale = 1.0f / std::sqrt(std::max(squares / N - mean * mean, 0.0f) + 1e-5f);
        for (int64_t i = 0; i < N; ++i) out[row * N + i] = (in[i] - mean) * scale * weight[i] + bias[i];
    }
}
