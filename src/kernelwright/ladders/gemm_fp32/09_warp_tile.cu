// A warp computes a tile of its own, 16 x 128, its lanes so ordered that reads of both operands take two passes.
//
// rung: question   In which order should the lanes of a warp lie?
// rung: hypothesis With 16 x 2 lanes a warp reads 576 bytes of shared memory for 2,048 FMAs, with 8 x 4 lanes 384. A load
// rung: hypothesis of 16 bytes a lane takes two passes instead of four where lanes n ^ 1 share an address in one operand
// rung: hypothesis and lanes n ^ 2 in the other. About 1.1 times faster.
// rung: next       Half the passes over shared memory, and no time: 32 x 64 is 2 % slower than before, 16 x 128 as the best of
// rung: next       26 forms 1 % faster. Nobody waited for those passes. All threads wait for a tile to arrive, then all
// rung: next       compute: let copies run meanwhile.
//
// kw: entry  gemm_warp_tile
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
#define WM 16  // a warp's tile
#define WN 128
#define BLOCKS 2
#endif
#define TM (WM / 4)  // a thread's sums: fours of neighbours, 16 rows and 32 columns apart
#define TN (WN / 8)
#define PAD 4
#define THREADS (BM / WM * (BN / WN) * 32)
#define FOURS_A (BM * BK / 4 / THREADS)
#define FOURS_B (BK * BN / 4 / THREADS)

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
gemm_warp_tile(const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
               float* __restrict__ out, int M, int N, int K, float alpha, float beta) {
    __shared__ __align__(16) float tile_a[BK][BM + PAD], tile_b[BK][BN];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    // the lane's bits, from the lowest: m0 n0 m1 n1 n2
    const int lane_m = (lane & 1) | ((lane >> 1) & 2), lane_n = ((lane >> 1) & 1) | ((lane >> 2) & 6);
    const int warp_m = warp / (BN / WN) * WM + lane_m * 4, warp_n = warp % (BN / WN) * WN + lane_n * 4;
    const int first_row = blockIdx.y * BM, first_column = blockIdx.x * BN;
    const bool wide_a = even(a, K), wide_b = even(b, N), wide_c = even(c, N) && even(out, N);
    float sum[TM][TN] = {};
    for (int start = 0; start < K; start += BK) {
        float4 from_a[FOURS_A], from_b[FOURS_B];  // all under way before the first is waited for
#pragma unroll
        for (int j = 0; j < FOURS_A; ++j) {
            // two neighbours read the two halves of a sector of A, sixteen pairs as many rows
            const int i = thread + j * THREADS, row = i / 2 % BM, k = i / (2 * BM) * 8 + i % 2 * 4;
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
            const int i = thread + j * THREADS, row = i / 2 % BM, k = i / (2 * BM) * 8 + i % 2 * 4;
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
                *reinterpret_cast<float4*>(&left[m]) = *reinterpret_cast<const float4*>(&tile_a[k][warp_m + m * 4]);
#pragma unroll
            for (int n = 0; n < TN; n += 4)
                *reinterpret_cast<float4*>(&right[n]) = *reinterpret_cast<const float4*>(&tile_b[k][warp_n + n * 8]);
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
            const int row = first_row + warp_m + m / 4 * 16 + m % 4, column = first_column + warp_n + n * 8;
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
