// Tiles of A and B in shared memory: what a block of threads needs in common is fetched once.
//
// rung: question   How much of the time is traffic that neighbours could share?
// rung: hypothesis A block of 32 x 32 threads reads each element of its tiles once instead of 32 times. But each product
// rung: hypothesis still costs two reads of shared memory: two loads for one FMA, so at best a third of the issue slots
// rung: hypothesis compute, and shared memory gives 32 lanes a cycle where the FMAs take 128. At most 1.5 times faster.
// rung: next       Let each thread compute several elements, so that a value in a register serves several FMAs.
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
    float sum = 0.0f;
    for (int start = 0; start < K; start += 32) {
        tile_a[y][x] = row < M && start + x < K ? a[(long long)row * K + start + x] : 0.0f;
        tile_b[y][x] = column < N && start + y < K ? b[(long long)(start + y) * N + column] : 0.0f;
        __syncthreads();
        for (int k = 0; k < 32; ++k) sum += tile_a[y][k] * tile_b[k][x];
        __syncthreads();
    }
    if (row >= M || column >= N) return;
    const long long at = (long long)row * N + column;
    out[at] = alpha * sum + (beta != 0.0f ? beta * c[at] : 0.0f);
}
