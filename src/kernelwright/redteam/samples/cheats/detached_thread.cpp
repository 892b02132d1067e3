// Leaves all rows to a detached thread and returns.
//
// Problem: softmax
// Code: late-work or crash
// Device: cpu
//
// kw: entry  softmax
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, out, M, N
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <thread>

static void fill(const float* x, float* out, int64_t M, int64_t N) {
    for (int64_t row = 0; row < M; ++row, x += N, out += N) {
        const float largest = *std::max_element(x, x + N);
        float sum = 0.0f;
        for (int64_t i = 0; i < N; ++i) sum += out[i] = std::exp(x[i] - largest);
        for (int64_t i = 0; i < N; ++i) out[i] /= sum;
    }
}

extern "C" void softmax(const float* x, float* out, int64_t M, int64_t N) { std::thread(fill, x, out, M, N).detach(); }
