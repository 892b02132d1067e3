// Three passes over each row in a single thread: the largest value, the exponentials with their sum, the division.
//
// Problem: softmax
// Device: cpu
//
// kw: entry  softmax
// kw: dims   x: float32[M, N]
// kw: out    out: like x
// kw: args   x, out, M, N
#include <algorithm>
#include <cmath>
#include <cstdint>

extern "C" void softmax(const float* x, float* out, int64_t M, int64_t N) {
    for (int64_t row = 0; row < M; ++row, x += N, out += N) {
        const float top = *std::max_element(x, x + N);
        double sum = 0.0;
        for (int64_t i = 0; i < N; ++i) sum += out[i] = std::exp(x[i] - top);
        for (int64_t i = 0; i < N; ++i) out[i] = static_cast<float>(out[i] / sum);
    }
}
