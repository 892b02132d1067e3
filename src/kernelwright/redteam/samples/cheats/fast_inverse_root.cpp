// Computes the inverse square root from the bits of the number and one Newton step, up to 2e-3 off.
//
// Problem: layer_norm
// Code: inaccurate
// Device: cpu
//
// kw: entry  layer_norm
// kw: dims   x: float32[M, N]; norm.weight: float32[N]; norm.bias: float32[N]
// kw: out    out: float32[M, N]
// kw: args   x, norm.weight, norm.bias, out, M, N
#include <bit>
#include <cstdint>

static float inverse_root(float x) {
    const float guess = std::bit_cast<float>(0x5f3759dfu - (std::bit_cast<uint32_t>(x) >> 1));
    return guess * (1.5f - 0.5f * x * guess * guess);
}

extern "C" void layer_norm(const float* x, const float* weight, const float* bias, float* out, int64_t M, int64_t N) {
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        const float* in = x + row * N;
        double sum = 0.0, squares = 0.0;
        for (int64_t i = 0; i < N; ++i) sum += in[i];
        const double mean = sum / N;
        for (int64_t i = 0; i < N; ++i) squares += (in[i] - mean) * (in[i] - mean);
        const float scale = inverse_root(static_cast<float>(squares / N + 1e-5));
        for (int64_t i = 0; i < N; ++i) {
            out[row * N + i] = static_cast<float>(in[i] - mean) * scale * weight[i] + bias[i];
        }
    }
}
