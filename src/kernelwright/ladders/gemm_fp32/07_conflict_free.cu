// No two lanes of an access in the same bank: A's rows are padded, a thread's eight columns of B lie in two halves.
//
// rung: question   What do bank conflicts cost?
// rung: hypothesis Transposing A stores two lanes into each bank, and eight floats from column to column read B in two
// rung: hypothesis passes more than need be. Four floats of padding and columns in two fours, 64 apart, end both. Shared
// rung: hypothesis memory was busy for about a third of the loop: 5 to 10 % faster.
// rung: next       The sizes of tiles were guessed: try them.
//
// kw: entry  gemm_conflict_free
// kw: dims   a: float32[M, K]; b: float32[K, N]; c: float32[M, N]
// kw: out    out: float32[M, N]
// kw: grid   cdiv(N, 128), cdiv(M, 128)
// kw: block  256
// kw: args   a, b, c, out, M, N, K, alpha, beta

#include "four.cuh"

#define BM 128
#define BN 128
#define BK 8
#define TM 8
#define TN 8
#define PAD 4

extern "C" __global__ void __launch_bounds__(256)
gemm_conflict_free(const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
                   float* __restrict__ out, int M, int N, int K, float alpha, float beta) {
    __shared__ __align__(16) float tile_a[BK][BM + PAD], tile_b[BK][BN];
    const int thread = threadIdx.x, x = thread % (BN / TN), y = thread / (BN / TN);
    const int first_row = blockIdx.y * BM, first_column = blockIdx.x * BN;
    const int ar = thread / 2, ak = thread % 2 * 4, bk = thread / 32, bc = thread % 32 * 4;
    const bool wide_a = even(a, K), wide_b = even(b, N), wide_c = even(c, N) && even(out, N);
    float sum[TM][TN] = {};
    for (int start = 0; start < K; start += BK) {
        const float4 from_a = four(a + (long long)(first_row + ar) * K + start + ak,
                                   first_row + ar < M ? K - start - ak : 0, wide_a);
        const float4 from_b = four(b + (long long)(start + bk) * N + first_column + bc,
                                   start + bk < K ? N - first_column - bc : 0, wide_b);
        tile_a[ak + 0][ar] = from_a.x;
        tile_a[ak + 1][ar] = from_a.y;
        tile_a[ak + 2][ar] = from_a.z;
        tile_a[ak + 3][ar] = from_a.w;
        *reinterpret_cast<float4*>(&tile_b[bk][bc]) = from_b;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float left[TM], right[TN];
#pragma unroll
            for (int m = 0; m < TM; m += 4)
                *reinterpret_cast<float4*>(&left[m]) = *reinterpret_cast<const float4*>(&tile_a[k][y * TM + m]);
#pragma unroll
            for (int n = 0; n < TN; n += 4)
                *reinterpret_cast<float4*>(&right[n]) = *reinterpret_cast<const float4*>(&tile_b[k][n * (BN / TN) + x * 4]);
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
