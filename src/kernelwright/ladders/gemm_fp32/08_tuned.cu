// Tuned tile sizes.
//
// rung: question   Which tile sizes are best on this GPU?
// rung: hypothesis 128 x 128 per block with 8 x 8 per thread was a guess. A larger tile reads less shared memory per
// rung: hypothesis FMA, a smaller one allows a second resident block that computes while the first waits at a barrier.
// rung: hypothesis Of the sizes that compile without spills, one is at least 1.05 times faster.
// rung: next       Of 109 sizes the best is 64 x 128 with 16 of K, 1.19 times the guess: half as many waits for tiles
// rung: next       are worth 1.10, and blocks of 128 threads fill the GPU when there are few tiles, 1.6 times at 1024.
// rung: next       Look at the arrangement of lanes: sixteen in a row read 512 bytes of B for two rows.
//
// kw: entry  gemm_tuned
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
#define TM 8
#define TN 8
#define MIN_BLOCKS 2
#endif
#define PAD 4
#define THREADS (BM / TM * (BN / TN))
#define LOADS_A (BM * BK / 4 / THREADS)
#define LOADS_B (BK * BN / 4 / THREADS)

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
gemm_tuned(const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
           float* __restrict__ out, int M, int N, int K, float alpha, float beta) {
    __shared__ __align__(16) float tile_a[BK][BM + PAD], tile_b[BK][BN];
    const int thread = threadIdx.x, thread_n = thread % (BN / TN), thread_m = thread / (BN / TN);
    const int first_row = blockIdx.y * BM, first_column = blockIdx.x * BN;
    const bool aligned_a = is_aligned4(a, K), aligned_b = is_aligned4(b, N);
    const bool aligned_c = is_aligned4(c, N) && is_aligned4(out, N);
    float acc[TM][TN] = {};
    for (int k_start = 0; k_start < K; k_start += BK) {
        float4 reg_a[LOADS_A], reg_b[LOADS_B];  // all loads are in flight before the first is used
#pragma unroll
        for (int j = 0; j < LOADS_A; ++j) {
            const int i = thread + j * THREADS, row = i / (BK / 4), k = i % (BK / 4) * 4;
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
            const int i = thread + j * THREADS, row = i / (BK / 4), k = i % (BK / 4) * 4;
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
                *reinterpret_cast<float4*>(&frag_a[m]) =
                    *reinterpret_cast<const float4*>(&tile_a[k][thread_m * TM + m]);
#pragma unroll
            for (int n = 0; n < TN; n += 4)
                *reinterpret_cast<float4*>(&frag_b[n]) =
                    *reinterpret_cast<const float4*>(&tile_b[k][n * (BN / TN) + thread_n * 4]);
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
            const int row = first_row + thread_m * TM + m, column = first_column + n * (BN / TN) + thread_n * 4;
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
