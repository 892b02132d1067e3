// The sizes of tiles tried instead of guessed.
//
// rung: question   Which tiles suit this chip?
// rung: hypothesis A block of 128 x 128 with 8 x 8 sums a thread was a guess. A larger tile reads less shared memory for
// rung: hypothesis an FMA, a smaller one leaves room for a second block that works while the first waits at a barrier.
// rung: hypothesis Of the sizes that compile without spilling, one is at least 1.05 times faster.
// rung: next       Of 109 sizes the best is 64 x 128 with 16 of K, 1.19 times the guess: half as many waits for a tile give
// rung: next       1.10, and blocks of 128 threads fill the chip where tiles are few, 1.6 times at 1024. Look at how a warp's
// rung: next       lanes lie: sixteen side by side read 512 bytes of B for two rows.
//
// kw: entry  gemm_tuned
// kw: dims   a: float32[M, K]; b: float32[K, N]; c: float32[M, N]
// kw: out    out: float32[M, N]
// kw: grid   cdiv(N, 128), cdiv(M, 64)
// kw: block  128
// kw: args   a, b, c, out, M, N, K, alpha, beta

#include "four.cuh"

#ifndef BM
#define BM 64
#define BN 128
#define BK 16
#define TM 8
#define TN 8
#define BLOCKS 2
#endif
#define PAD 4
#define THREADS (BM / TM * (BN / TN))
#define FOURS_A (BM * BK / 4 / THREADS)
#define FOURS_B (BK * BN / 4 / THREADS)

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
gemm_tuned(const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
           float* __restrict__ out, int M, int N, int K, float alpha, float beta) {
    __shared__ __align__(16) float tile_a[BK][BM + PAD], tile_b[BK][BN];
    const int thread = threadIdx.x, x = thread % (BN / TN), y = thread / (BN / TN);
    const int first_row = blockIdx.y * BM, first_column = blockIdx.x * BN;
    const bool wide_a = even(a, K), wide_b = even(b, N), wide_c = even(c, N) && even(out, N);
    float sum[TM][TN] = {};
    for (int start = 0; start < K; start += BK) {
        float4 from_a[FOURS_A], from_b[FOURS_B];  // all under way before the first is waited for
#pragma unroll
        for (int j = 0; j < FOURS_A; ++j) {
            const int i = thread + j * THREADS, row = i / (BK / 4), k = i % (BK / 4) * 4;
            from_a[j] = four(a + (long long)(first_row + row) * K + start + k,
                             first_row + row < M ? K - start - k : 0, wide_a);
        }
#pragma unroll
        for (int j = 0; j < FOURS_B; ++j) {
            const int i = thread + j * THREADS, k = i / (BN / 4), column = i % (BN / 4) * 4;
            from_b[j] = four(b + (long long)(start + k) * N + first_column + column,
                             start + k < K ? N - first_column - column : 0, wide_b);
        }
#pragma unroll
        for (int j = 0; j < FOURS_A; ++j) {
            const int i = thread + j * THREADS, row = i / (BK / 4), k = i % (BK / 4) * 4;
            tile_a[k + 0][row] = from_a[j].x;
            tile_a[k + 1][row] = from_a[j].y;
            tile_a[k + 2][row] = from_a[j].z;
            tile_a[k + 3][row] = from_a[j].w;
        }
#pragma unroll
        for (int j = 0; j < FOURS_B; ++j) {
            const int i = thread + j * THREADS;
            *reinterpret_cast<float4*>(&tile_b[i / (BN / 4)][i % (BN / 4) * 4]) = from_b[j];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float left[TM], right[TN];
#pragma unroll
            for (int m = 0; m < TM; m += 4)
                *reinterpret_cast<float4*>(&left[m]) = *reinterpret_cast<const float4*>(&tile_a[k][y * TM + m]);
#pragma unroll
            for (int n = 0; n < TN; n += 4)
                *reinterpret_cast<float4*>(&right[n]) =
                    *reinterpret_cast<const float4*>(&tile_b[k][n * (BN / TN) + x * 4]);
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
        for (int n = 0; n < TN; n += 4) {
            const int row = first_row + y * TM + m, column = first_column + n * (BN / TN) + x * 4;
            if (row >= M) continue;
            float* at = out + (long long)row * N + column;
            float4 held = make_float4(alpha * sum[m][n], alpha * sum[m][n + 1], alpha * sum[m][n + 2],
                                      alpha * sum[m][n + 3]);
            if (beta != 0.0f) {
                const float4 before = four(c + (long long)row * N + column, N - column, wide_c);
                held.x += beta * before.x;
                held.y += beta * before.y;
                held.z += beta * before.z;
                held.w += beta * before.w;
            }
            if (wide_c && column + 3 < N) {
                *reinterpret_cast<float4*>(at) = held;
            } else {
                if (column + 0 < N) at[0] = held.x;
                if (column + 1 < N) at[1] = held.y;
                if (column + 2 < N) at[2] = held.z;
                if (column + 3 < N) at[3] = held.w;
            }
        }
}
