// The same, with neighbouring threads along a row of the result.
//
// rung: question   What does it cost that a warp reads 32 rows at once?
// rung: hypothesis A warp now reads one element of A for all of its threads and 32 neighbours of B: 1 and 4 sectors a
// rung: hypothesis request in place of 32. Eight times fewer sectors, so about eight times faster; then the L2 is the limit.
// rung: next       Every element of A and B is still fetched from the L2 or L1 for each product: keep tiles in shared memory.
//
// kw: entry  gemm_coalesced
// kw: dims   a: float32[M, K]; b: float32[K, N]; c: float32[M, N]
// kw: out    out: float32[M, N]
// kw: grid   cdiv(N, 32), cdiv(M, 32)
// kw: block  32, 32
// kw: args   a, b, c, out, M, N, K, alpha, beta

extern "C" __global__ void gemm_coalesced(const float* __restrict__ a, const float* __restrict__ b,
                                          const float* __restrict__ c, float* __restrict__ out, int M, int N, int K,
                                          float alpha, float beta) {
    const int row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
    if (row >= M || column >= N) return;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += a[(long long)row * K + k] * b[(long long)k * N + column];
    const long long at = (long long)row * N + column;
    out[at] = alpha * sum + (beta != 0.0f ? beta * c[at] : 0.0f);
}
