// Tiles of A and B in shared memory, loaded once per block.
//
// rung: question   How much time does redundant global memory traffic within a block take?
// rung: hypothesis A block of 32 x 32 threads loads each element of its tiles once instead of 32 times. But each FMA
// rung: hypothesis still needs two shared memory loads, so at best a third of the issue slots are FMAs, and shared
// rung: hypothesis memory delivers 32 lanes per cycle where the FMA units take 128. At most 1.5 times faster.
// rung: next       Compute several elements per thread, so that a value in a register serves several FMAs.
//
// kw: entry  gemm_shared
// kw: dims   a: float32[M, K]; b: float32[K, N]; c: float32[M, N]
// kw: out    out: float32[M, N]
// kw: grid   cdiv(N, 32), cdiv(M, 32)
// kw: block  32, 32
// kw: args   a, b, c, out, M, N, K, alpha, beta

extern "C" __global__ void gemm_shared(const float* __restrict__ a, const float* __restrict__ b,
                                       const float* __restrict__ c, float* __restrict__ out, int M, int N, int K,
                                       float alpha, float beta) {
    __shared__ float tile_a[32][32], tile_b[32][32];
    const int x = threadIdx.x, y = threadIdx.y;
    const int row = blockIdx.y * 32 + y, column = blockIdx.x * 32 + x;
    float acc = 0.0f;
    for (int k_start = 0; k_start < K; k_start += 32) {
        tile_a[y][x] = row < M && k_start + x < K ? a[(long long)row * K + k_start + x] : 0.0f;
        tile_b[y][x] = column < N && k_start + y < K ? b[(long long)(k_start + y) * N + column] : 0.0f;
        __syncthreads();
        for (int k = 0; k < 32; ++k) acc += tile_a[y][k] * tile_b[k][x];
        __syncthreads();
    }
    if (row >= M || column >= N) return;
    const long long offset = (long long)row * N + column;
    out[offset] = alpha * acc + (beta != 0.0f ? beta * c[offset] : 0.0f);
}
