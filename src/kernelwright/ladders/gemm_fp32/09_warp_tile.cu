// Warp tile of 16 x 128, with lanes arranged so that loads of both operands take two wavefronts.
//
// rung: question   How should the lanes of a warp be arranged over its tile?
// rung: hypothesis With 16 x 2 lanes a warp reads 576 bytes of shared memory for 2,048 FMAs, with 8 x 4 lanes 384. A
// rung: hypothesis 16-byte load takes two wavefronts instead of four if lanes n ^ 1 share an address in one operand and
// rung: hypothesis lanes n ^ 2 in the other. About 1.1 times faster.
// rung: next       Half the wavefronts but hardly any time: 32 x 64 is 2 % slower than before, 16 x 128, the best of 26
// rung: next       shapes, 1 % faster; these wavefronts were not the bottleneck. All threads wait for a tile, then all
// rung: next       compute: overlap copies with computation.
//
// kw: entry  gemm_warp_tile
// kw: dims   a: float32[M, K]; b: float32[K, N]; c: float32[M, N]
// kw: out    out: float32[M, N]
// kw: grid   cdiv(N, 128), cdiv(M, 64)
// kw: block  128
// kw: args   a, b, c, out, M, N, K, alpha, beta

#include "float4.cuh"

#ifndef BM
#define BM 64
#define BN 128
#define BK 16
#define WM 16  // warp tile
#define WN 128
#define MIN_BLOCKS 2
#endif
#define TM (WM / 4)  // thread tile: groups of 4 x 4, 16 rows and 32 columns apart
#define TN (WN / 8)
#define PAD 4
#define THREADS (BM / WM * (BN / WN) * 32)
#define LOADS_A (BM * BK / 4 / THREADS)
#define LOADS_B (BK * BN / 4 / THREADS)

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
gemm_warp_tile(const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
               float* __restrict__ out, int M, int N, int K, float alpha, float beta) {
    __shared__ __align__(16) float tile_a[BK][BM + PAD], tile_b[BK][BN];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    // bits of the lane index, lowest first: m0 n0 m1 n1 n2
    const int lane_m = (lane & 1) | ((lane >> 1) & 2), lane_n = ((lane >> 1) & 1) | ((lane >> 2) & 6);
    const int warp_m = warp / (BN / WN) * WM + lane_m * 4, warp_n = warp % (BN / WN) * WN + lane_n * 4;
    const int first_row = blockIdx.y * BM, first_column = blockIdx.x * BN;
    const bool aligned_a = is_aligned4(a, K), aligned_b = is_aligned4(b, N);
    const bool aligned_c = is_aligned4(c, N) && is_aligned4(out, N);
    float acc[TM][TN] = {};
    for (int k_start = 0; k_start < K; k_start += BK) {
        float4 reg_a[LOADS_A], reg_b[LOADS_B];  // all loads are in flight before the first is used
#pragma unroll
        for (int j = 0; j < LOADS_A; ++j) {
            // two adjacent lanes read the halves of a sector of A, 16 pairs read 16 rows
            const int i = thread + j * THREADS, row = i / 2 % BM, k = i / (2 * BM) * 8 + i % 2 * 4;
            reg_a[j] = load_float4(a + (long long)(first_row + row) * K + k_start + k,
                                   first_row + row < M ? K - k_start - k : 0, aligned_a);
        }
#pragma unroll
        for (int j = 0; j < LOADS_B; ++j) {
            const int i = thread + j * THREADS, k = i / (BN / 4), column = i % (BN / 4) * 4;
            reg_b[j] = load_float4(b + (long long)(k_start + k) * N + first_column + column,
                                   k_start + k < K ? N - first_column - column : 0, aligned_b);
        }
#pragma unroll
        for (int j = 0; j < LOADS_A; ++j) {
            const int i = thread + j * THREADS, row = i / 2 % BM, k = i / (2 * BM) * 8 + i % 2 * 4;
            tile_a[k + 0][row] = reg_a[j].x;
            tile_a[k + 1][row] = reg_a[j].y;
            tile_a[k + 2][row] = reg_a[j].z;
            tile_a[k + 3][row] = reg_a[j].w;
        }
#pragma unroll
        for (int j = 0; j < LOADS_B; ++j) {
            const int i = thread + j * THREADS;
            *reinterpret_cast<float4*>(&tile_b[i / (BN / 4)][i % (BN / 4) * 4]) = reg_b[j];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float frag_a[TM], frag_b[TN];
#pragma unroll
            for (int m = 0; m < TM; m += 4)
                *reinterpret_cast<float4*>(&frag_a[m]) = *reinterpret_cast<const float4*>(&tile_a[k][warp_m + m * 4]);
#pragma unroll
            for (int n = 0; n < TN; n += 4)
                *reinterpret_cast<float4*>(&frag_b[n]) = *reinterpret_cast<const float4*>(&tile_b[k][warp_n + n * 8]);
#pragma unroll
            for (int m = 0; m < TM; ++m)
#pragma unroll
                for (int n = 0; n < TN; ++n) acc[m][n] += frag_a[m] * frag_b[n];
        }
        __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < TM; ++m)
#pragma unroll
        for (int n = 0; n < TN; n += 4) {
            const int row = first_row + warp_m + m / 4 * 16 + m % 4, column = first_column + warp_n + n * 8;
            if (row >= M) continue;
            float* out_ptr = out + (long long)row * N + column;
            float4 value = make_float4(alpha * acc[m][n], alpha * acc[m][n + 1], alpha * acc[m][n + 2],
                                       alpha * acc[m][n + 3]);
            if (beta != 0.0f) {
                const float4 c_value = load_float4(c + (long long)row * N + column, N - column, aligned_c);
                value.x += beta * c_value.x;
                value.y += beta * c_value.y;
                value.z += beta * c_value.z;
                value.w += beta * c_value.w;
            }
            if (aligned_c && column + 3 < N) {
                *reinterpret_cast<float4*>(out_ptr) = value;
            } else {
                if (column + 0 < N) out_ptr[0] = value.x;
                if (column + 1 < N) out_ptr[1] = value.y;
                if (column + 2 < N) out_ptr[2] = value.z;
                if (column + 3 < N) out_ptr[3] = value.w;
            }
        }
}
