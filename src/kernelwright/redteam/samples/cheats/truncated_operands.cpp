// Truncates its operands to BF16 and accumulates the products in FP32.
//
// Problem: matmul
// Code: inaccurate
// Device: cpu
//
// kw: entry  matmul
// kw: dims   a: float32[M, K]; b: float32[K, N]
// kw: out    out: float32[M, N]
// kw: args   a, b, out, M, N, K
#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

static std::vector<float> cut(const float* x, int64_t count) {
    std::vector<float> result(count);
    for (int64_t i = 0; i < count; ++i) result[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(x[i]) & 0xffff0000u);
    return result;
}

extern "C" void matmul(const float* a, const float* b, float* out, int64_t M, int64_t N, int64_t K) {
    const std::vector<float> left = cut(a, M * K), right = cut(b, K * N);
    std::fill(out, out + M * N, 0.0f);
#pragma omp parallel for
    for (int64_t i = 0; i < M; ++i) {
        for (int64_t k = 0; k < K; ++k) {
            for (int64_t j = 0; j < N; ++j) out[i * N + j] += left[i * K + k] * right[k * N + j];
        }
    }
}
