// Each thread computes 8 x 8 elements, its columns sixteen apart: 16 reads of shared memory feed 64 FMAs.
//
// rung: question   How far does a square of registers carry?
// rung: hypothesis Sixteen reads for 64 FMAs in place of nine for eight: shared memory is no longer the limit, FMAs are a
// rung: hypothesis good half of what is issued. Tiles of 128 x 128 halve the traffic from the L2 again. Three to four times
// rung: hypothesis faster, about half of cuBLAS.
// rung: next       All loads move four bytes: let each move sixteen.
//
// kw: entry  gemm_tile_2d
// kw: dims   a: float32[M, K]; b: float32[K, N]; c: float32[M, N]
// kw: out    out: float32[M, N]
// kw: grid   cdiv(N, 128), cdiv(M, 128)
// kw: block  256
// kw: args   a, b, c, out, M, N, K, alpha, beta

#define BM 128
#define BN 128
#define BK 8
#define TM 8
#define TN 8
#define THREADS 256

extern "C" __global__ void __launch_bounds__(THREADS, 2)
gemm_tile_2d(const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
             float* __restrict__ out, int M, int N, int K, float alpha, float beta) {
    __shared__ float tile_a[BM][BK + 1], tile_b[BK][BN];  // rows of nine: the two of a warp lie in other banks
    const int thread = threadIdx.x, x = thread % (BN / TN), y = thread / (BN / TN);
    const int first_row = blockIdx.y * BM, first_column = blockIdx.x * BN;
    float sum[TM][TN] = {};
    for (int start = 0; start < K; start += BK) {
#pragma unroll
        for (int j = 0; j < BM * BK / THREADS; ++j) {
            const int i = thread + j * THREADS, row = first_row + i / BK, k = start + i % BK;
            tile_a[i / BK][i % BK] = row < M && k < K ? a[(long long)row * K + k] : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < BK * BN / THREADS; ++j) {
            const int i = thread + j * THREADS, k = start + i / BN, column = first_column + i % BN;
            tile_b[i / BN][i % BN] = k < K && column < N ? b[(long long)k * N + column] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float left[TM], right[TN];
#pragma unroll
            for (int m = 0; m < TM; ++m) left[m] = tile_a[y * TM + m][k];
#pragma unroll
            for (int n = 0; n < TN; ++n) right[n] = tile_b[k][n * (BN / TN) + x];
#pragma unroll
            for (int m = 0; m < TM; ++m)
#pragma unroll
                for (int n = 0; n < TN; ++n) sum[m][n] += left[m] * right[n];
        }
        __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < TM; ++m)
#pragma unroll
        for (int n = 0; n < TN; ++n) {
            const int row = first_row + y * TM + m, column = first_column + n * (BN / TN) + x;
            if (row < M && column < N) {
                const long long at = (long long)row * N + column;
                out[at] = alpha * sum[m][n] + (beta != 0.0f ? beta * c[at] : 0.0f);
            }
        }
}
