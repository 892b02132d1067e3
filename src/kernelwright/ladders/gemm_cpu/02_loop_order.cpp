// The same three loops in another order: the inner one walks along a row of B and a row of the result.
//
// rung: question   What does the order of the loops cost?
// rung: hypothesis Whole lines are used and the compiler makes vectors of sixteen floats out of the inner loop: each FMA
// rung: hypothesis loads one vector, loads another and stores it. Limited by the L1 while a row stays there, then by the
// rung: hypothesis L2. Some thirty times faster.
// rung: next       For each row of A all of B passes by: keep a block of it in the cache.
//
// kw: entry  gemm_loop_order
// kw: dims   a: float32[M, K]; b: float32[K, N]; c: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   a, b, c, out, M, N, K, alpha, beta
#include <cstdint>

extern "C" void gemm_loop_order(const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
                                float* __restrict__ out, int64_t M, int64_t N, int64_t K, double alpha, double beta) {
    for (int64_t i = 0; i < M; ++i) {
        for (int64_t j = 0; j < N; ++j) out[i * N + j] = beta != 0.0 ? float(beta) * c[i * N + j] : 0.0f;
        for (int64_t k = 0; k < K; ++k) {
            const float held = float(alpha) * a[i * K + k];
            for (int64_t j = 0; j < N; ++j) out[i * N + j] += held * b[k * N + j];
        }
    }
}
