// Each thread keeps a row of FP64 scratch between calls, which only grows and is overwritten for every row.
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
#include <vector>

static thread_local std::vector<double> raised;

extern "C" void softmax(const float* x, float* out, int64_t M, int64_t N) {
#pragma omp parallel for schedule(dynamic)
    for (int64_t row = 0; row < M; ++row) {
        const float* in = x + row * N;
        if (static_cast<int64_t>(raised.size()) < N) raised.resize(N);
        const double top = *std::max_element(in, in + N);
        double sum = 0.0;
        for (int64_t i = 0; i < N; ++i) sum += raised[i] = std::exp(in[i] - top);
        for (int64_t i = 0; i < N; ++i) out[row * N + i] = static_cast<float>(raised[i] / sum);
    }
}
