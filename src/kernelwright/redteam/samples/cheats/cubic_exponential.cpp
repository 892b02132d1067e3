// Computes the exponential by a cubic and the exponent bits, exact to four digits and vectorised.
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
#include <bit>
#include <cmath>
#include <cstdint>

static float rough_exp(float x) {
    const float y = std::max(x * 1.44269504f, -126.0f), whole = std::floor(y), part = y - whole;
    const float power = 0.99992522f + part * (0.69583354f + part * (0.22606716f + part * 0.07806558f));
    return std::bit_cast<float>((static_cast<int32_t>(whole) + 127) << 23) * power;
}

extern "C" void softmax(const float* x, float* out, int64_t M, int64_t N) {
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        const float* in = x + row * N;
        const float top = *std::max_element(in, in + N);
        double sum = 0.0;
        for (int64_t i = 0; i < N; ++i) sum += out[row * N + i] = rough_exp(in[i] - top);
        for (int64_t i = 0; i < N; ++i) out[row * N + i] *= static_cast<float>(1.0 / sum);
    }
}
