// One thread per output element, a direct translation of the formula.
//
// rung: question   How fast is the plain formula, with one thread per element?
// rung: hypothesis Adjacent threads compute adjacent rows, so each load of A touches 32 rows: 32 sectors instead of 4.
// rung: hypothesis The L1 needs 32 cycles per request while the FMA units stall: about 1 % of cuBLAS.
// rung: next       Coalesce: let adjacent threads read adjacent addresses.
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
    float acc = 0.0f;
    for (int k = 0; k < K; ++k) acc += a[(long long)row * K + k] * b[(long long)k * N + column];
    const long long offset = (long long)row * N + column;
    out[offset] = alpha * acc + (beta != 0.0f ? beta * c[offset] : 0.0f);
}
