// One thread for each element of the result, as the formula says it.
//
// rung: question   How fast is the formula itself, one thread an element?
// rung: hypothesis Neighbouring threads take neighbouring rows, so each request for A touches 32 rows: 32 sectors where
// rung: hypothesis 4 would do. The L1 serves one request in 32 steps and the arithmetic units wait: about 1 % of cuBLAS.
// rung: next       Let neighbouring threads read neighbouring addresses.
//
// kw: entry  gemm_naive
// kw: dims   a: float32[M, K]; b: float32[K, N]; c: float32[M, N]
// kw: out    out: float32[M, N]
// kw: grid   cdiv(M, 32), cdiv(N, 32)
// kw: block  32, 32
// kw: args   a, b, c, out, M, N, K, alpha, beta

extern "C" __global__ void gemm_naive(const float* __restrict__ a, const float* __restrict__ b,
                                      const float* __restrict__ c, float* __restrict__ out, int M, int N, int K,
                                      float alpha, float beta) {
    const int row = blockIdx.x * 32 + threadIdx.x, column = blockIdx.y * 32 + threadIdx.y;
    if (row >= M || column >= N) return;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += a[(long long)row * K + k] * b[(long long)k * N + column];
    const long long at = (long long)row * N + column;
    out[at] = alpha * sum + (beta != 0.0f ? beta * c[at] : 0.0f);
}
