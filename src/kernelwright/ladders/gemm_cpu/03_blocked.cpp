// Blocks of B stay in the L2 while every row of A passes by, and a result is fetched once for eight FMAs.
//
// rung: question   What is left of the caches' part when B is near and a result is not fetched for each FMA?
// rung: hypothesis Each FMA loads a vector of B, loads one of the result and stores it. Eight steps of K at once load and
// rung: hypothesis store the result once for eight FMAs: nine loads in place of sixteen, one store in place of eight. A
// rung: hypothesis block of 256 x 512 floats stays in the L2. Up to twice as fast.
// rung: next       Keep the results in registers while K passes by.
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
