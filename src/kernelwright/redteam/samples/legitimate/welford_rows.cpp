// Mean and variance of each row in one pass by Welford's method.
//
// Problem: layer_norm
// Device: cpu
//
// kw: entry  layer_norm
// kw: dims   x: float32[M, N]; norm.weight: float32[N]; norm.bias: float32[N]
// kw: out    out: float32[M, N]
// kw: args   x, norm.weight, norm.bias, out, M, N
#include <cmath>
#include <cstdint>

extern "C" void layer_norm(const float* x, const float* weight, const float* bias, float* out, int64_t M, int64_t N) {
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        const float* in = x + row * N;
        double mean = 0.0, spread = 0.0;
        for (int64_t i = 0; i < N; ++i) {
            const double away = in[i] - mean;
            mean += away / (i + 1);
            spread += away * (in[i] - mean);
        }
        const double scale = 1.0 / std::sqrt(spread / N + 1e-5);
        for (int64_t i = 0; i < N; ++i) {
            out[row * N + i] = static_cast<float>((in[i] - mean) * scale * weight[i] + bias[i]);
        }
    }
}
