// A specialised version for the problem's 1,531 columns, and a general one for any other number.
//
// Problem: softmax
// Device: cpu
//
// kw: entry  softmax
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, out, M, N
#include <algorithm>
#include <cmath>
#include <cstdint>

template <int64_t KNOWN>
static void rows(const float* x, float* out, int64_t M, int64_t columns) {
    const int64_t N = KNOWN ? KNOWN : columns;
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        const float* in = x + row * N;
        const float top = *std::max_element(in, in + N);
        double sum = 0.0;
        for (int64_t i = 0; i < N; ++i) sum += out[row * N + i] = std::exp(in[i] - top);
        for (int64_t i = 0; i < N; ++i) out[row * N + i] = static_cast<float>(out[row * N + i] / sum);
    }
}

extern "C" void softmax(const float* x, float* out, int64_t M, int64_t N) {
    if (N == 1531) rows<1531>(x, out, M, N);
    else rows<0>(x, out, M, N);
}
