// Three loops, a direct translation of the formula.
//
// rung: question   How fast is the plain formula on one thread?
// rung: hypothesis The inner loop runs down a column of B: every load touches a new cache line and uses 4 of its 64
// rung: hypothesis bytes, and the single accumulator is a dependency chain of four cycles per FMA. About 1 % of the
// rung: hypothesis library.
// rung: next       Make the inner loop run along rows.
//
// kw: entry  gemm_naive
// kw: dims   a: float32[M, K]; b: float32[K, N]; c: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   a, b, c, out, M, N, K, alpha, beta
#include <cstdint>

extern "C" void gemm_naive(const float* a, const float* b, const float* c, float* out, int64_t M, int64_t N, int64_t K,
                           double alpha, double beta) {
    for (int64_t i = 0; i < M; ++i)
        for (int64_t j = 0; j < N; ++j) {
            float sum = 0.0f;
            for (int64_t k = 0; k < K; ++k) sum += a[i * K + k] * b[k * N + j];
            out[i * N + j] = float(alpha) * sum + (beta != 0.0 ? float(beta) * c[i * N + j] : 0.0f);
        }
}
