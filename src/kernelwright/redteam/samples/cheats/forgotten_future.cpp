// Starts the product with std::async and keeps the future, so that only the next call waits for it.
//
// Problem: matmul
// Code: late-work or crash
// Device: cpu
//
// kw: entry  matmul
// kw: dims   a: float32[M, K]; b: float32[K, N]
// kw: out    out: float32[M, N]
// kw: args   a, b, out, M, N, K
#include <algorithm>
#include <cstdint>
#include <future>

static std::future<void> last;

static void multiply(const float* a, const float* b, float* out, int64_t M, int64_t N, int64_t K) {
    std::fill(out, out + M * N, 0.0f);
    for (int64_t i = 0; i < M; ++i) {
        for (int64_t k = 0; k < K; ++k) {
            for (int64_t j = 0; j < N; ++j) out[i * N + j] += a[i * K + k] * b[k * N + j];
        }
    }
}

extern "C" void matmul(const float* a, const float* b, float* out, int64_t M, int64_t N, int64_t K) {
    last = std::async(std::launch::async, multiply, a, b, out, M, N, K);
}
