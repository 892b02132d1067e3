// Cache blocking: blocks of B stay in the L2 for all rows of A, and an output vector is loaded once for eight FMAs.
//
// rung: question   What do cache blocking of B and fewer loads of the output gain?
// rung: hypothesis Each FMA loads a vector of B, loads a vector of the output and stores it. Unrolling K by eight loads
// rung: hypothesis and stores the output once for eight FMAs: nine loads instead of sixteen, one store instead of
// rung: hypothesis eight. A block of 256 x 512 floats fits in the L2. Up to twice as fast.
// rung: next       Keep the output in registers over the loop in K.
//
// kw: entry  gemm_blocked
// kw: dims   a: float32[M, K]; b: float32[K, N]; c: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   a, b, c, out, M, N, K, alpha, beta
#include <algorithm>
#include <cstdint>

constexpr int64_t KC = 256, NC = 512, STEPS = 8;

extern "C" void gemm_blocked(const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
                             float* __restrict__ out, int64_t M, int64_t N, int64_t K, double alpha, double beta) {
    for (int64_t i = 0; i < M * N; ++i) out[i] = beta != 0.0 ? float(beta) * c[i] : 0.0f;
    for (int64_t jc = 0; jc < N; jc += NC)
        for (int64_t kc = 0; kc < K; kc += KC) {
            const int64_t width = std::min(NC, N - jc), depth = std::min(KC, K - kc);
            for (int64_t i = 0; i < M; ++i) {
                float* to = out + i * N + jc;
                int64_t k = 0;
                for (; k + STEPS <= depth; k += STEPS) {
                    const float* left = a + i * K + kc + k;
                    const float* from = b + (kc + k) * N + jc;
                    for (int64_t j = 0; j < width; ++j) {
                        float sum = 0.0f;
                        for (int64_t s = 0; s < STEPS; ++s) sum += left[s] * from[s * N + j];
                        to[j] += float(alpha) * sum;
                    }
                }
                for (; k < depth; ++k)
                    for (int64_t j = 0; j < width; ++j)
                        to[j] += float(alpha) * a[i * K + kc + k] * b[(kc + k) * N + jc + j];
            }
        }
}
