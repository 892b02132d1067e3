// Rounds its operands to the 10 bits of TF32 and accumulates in FP64, which no norm of the error exposes.
//
// Problem: matmul
// Code: inaccurate
// Device: cpu
//
// kw: entry  matmul
// kw: dims   a: float32[M, K]; b: float32[K, N]
// kw: out    out: float32[M, N]
// kw: args   a, b, out, M, N, K
#include <bit>
#include <cstdint>
#include <vector>

static float tf32(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    return std::bit_cast<float>((bits + 0x0fffu + (bits >> 13 & 1)) & ~0x1fffu);
}

extern "C" void matmul(const float* a, const float* b, float* out, int64_t M, int64_t N, int64_t K) {
#pragma omp parallel for
    for (int64_t i = 0; i < M; ++i) {
        std::vector<double> sums(N);
        for (int64_t k = 0; k < K; ++k) {
            const double left = tf32(a[i * K + k]);
            for (int64_t j = 0; j < N; ++j) sums[j] += left * tf32(b[k * N + j]);
        }
        for (int64_t j = 0; j < N; ++j) out[i * N + j] = static_cast<float>(sums[j]);
    }
}
