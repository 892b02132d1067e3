// Finds the largest value and the sum of each row in one pass, rescaling the sum whenever a larger value occurs.
//
// Problem: softmax
// Device: cpu
//
// kw: entry  softmax
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, out, M, N
#include <cmath>
#include <cstdint>

extern "C" void softmax(const float* x, float* out, int64_t M, int64_t N) {
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        const float* in = x + row * N;
        float top = -INFINITY;
        double sum = 0.0;
        for (int64_t i = 0; i < N; ++i) {
            if (in[i] == -INFINITY) continue;
            if (in[i] > top) {
                sum *= std::exp(static_cast<double>(top) - in[i]);
                top = in[i];
            }
            sum += std::exp(in[i] - top);
        }
        for (int64_t i = 0; i < N; ++i) out[row * N + i] = static_cast<float>(std::exp(in[i] - top) / sum);
    }
}
