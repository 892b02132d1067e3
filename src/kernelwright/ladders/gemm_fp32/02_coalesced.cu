// Coalesced: adjacent threads compute adjacent columns of a row.
//
// rung: question   What do uncoalesced loads of 32 rows per warp cost?
// rung: hypothesis A warp now reads one element of A (broadcast) and 32 adjacent elements of B: 1 and 4 sectors per
// rung: hypothesis request instead of 32. Eight times fewer sectors, so about eight times faster; then L2-bound.
// rung: next       Each FMA still loads both operands from the L1 or L2: keep tiles in shared memory.
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
    float acc = 0.0f;
    for (int k = 0; k < K; ++k) acc += a[(long long)row * K + k] * b[(long long)k * N + column];
    const long long offset = (long long)row * N + column;
    out[offset] = alpha * acc + (beta != 0.0f ? beta * c[offset] : 0.0f);
}
