// Centres each row in its input and adds the mean again afterwards: all but the last bit is restored.
//
// Problem: layer_norm
// Code: input-mutated
// Device: cpu
//
// kw: entry  layer_norm
// kw: dims   x: float32[M, N]; norm.weight: float32[N]; norm.bias: float32[N]
// kw: out    out: float32[M, N]
// kw: args   x, norm.weight, norm.bias, out, M, N
#include <cmath>
#include <cstdint>

extern "C" void layer_norm(float* x, const float* weight, const float* bias, float* out, int64_t M, int64_t N) {
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        float* in = x + row * N;
        double sum = 0.0, squares = 0.0;
        for (int64_t i = 0; i < N; ++i) sum += in[i];
        const float mean = static_cast<float>(sum / N);
        for (int64_t i = 0; i < N; ++i) {
            in[i] -= mean;
            squares += static_cast<double>(in[i]) * in[i];
        }
        const float scale = static_cast<float>(1.0 / std::sqrt(squares / N + 1e-5));
        for (int64_t i = 0; i < N; ++i) {
            out[row * N + i] = in[i] * scale * weight[i] + bias[i];
            in[i] += mean;
        }
    }
}
