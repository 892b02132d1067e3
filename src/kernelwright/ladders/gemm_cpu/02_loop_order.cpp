// Loop interchange: the inner loop runs along a row of B and a row of the output.
//
// rung: question   What does the loop order cost?
// rung: hypothesis Whole cache lines are used, and the compiler vectorizes the inner loop with 16 floats per vector:
// rung: hypothesis each FMA needs two loads and a store. Bound by the L1 while a row fits, then by the L2. About thirty
// rung: hypothesis times faster.
// rung: next       Each row of A streams all of B: keep a block of B in the cache.
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
