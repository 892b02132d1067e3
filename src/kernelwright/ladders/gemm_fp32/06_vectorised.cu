// 16-byte loads from global and shared memory; A is transposed in shared memory for them.
//
// rung: question   Do load instructions take too many issue slots?
// rung: hypothesis One LDG.128 instead of four loads, and four LDS.128 instead of sixteen loads for 64 FMAs: the FMA
// rung: hypothesis share of the instructions issued in the loop rises from 80 to 90 %. About 1.2 times faster.
// rung: next       Storing A transposed and reading B with a stride of eight floats causes bank conflicts.
//
// kw: entry  gemm_vectorised
// kw: dims   a: float32[M, K]; b: float32[K, N]; c: float32[M, N]
// kw: out    out: float32[M, N]
// kw: grid   cdiv(N, 128), cdiv(M, 128)
// kw: block  256
// kw: args   a, b, c, out, M, N, K, alpha, beta

#include "float4.cuh"

#define BM 128
#define BN 128
#define BK 8
#define TM 8
#define TN 8

extern "C" __global__ void __launch_bounds__(256)
gemm_vectorised(const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
                float* __restrict__ out, int M, int N, int K, float alpha, float beta) {
    __shared__ __align__(16) float tile_a[BK][BM], tile_b[BK][BN];
    const int thread = threadIdx.x, thread_n = thread % (BN / TN), thread_m = thread / (BN / TN);
    const int first_row = blockIdx.y * BM, first_column = blockIdx.x * BN;
    const int a_row = thread / 2, a_k = thread % 2 * 4, b_k = thread / 32, b_col = thread % 32 * 4;
    const bool aligned_a = is_aligned4(a, K), aligned_b = is_aligned4(b, N);
    const bool aligned_c = is_aligned4(c, N) && is_aligned4(out, N);
    float acc[TM][TN] = {};
    for (int k_start = 0; k_start < K; k_start += BK) {
        const float4 reg_a = load_float4(a + (long long)(first_row + a_row) * K + k_start + a_k,
                                         first_row + a_row < M ? K - k_start - a_k : 0, aligned_a);
        const float4 reg_b = load_float4(b + (long long)(k_start + b_k) * N + first_column + b_col,
                                         k_start + b_k < K ? N - first_column - b_col : 0, aligned_b);
        tile_a[a_k + 0][a_row] = reg_a.x;
        tile_a[a_k + 1][a_row] = reg_a.y;
        tile_a[a_k + 2][a_row] = reg_a.z;
        tile_a[a_k + 3][a_row] = reg_a.w;
        *reinterpret_cast<float4*>(&tile_b[b_k][b_col]) = reg_b;
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
                    *reinterpret_cast<const float4*>(&tile_b[k][thread_n * TN + n]);
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
            const int row = first_row + thread_m * TM + m, column = first_column + thread_n * TN + n;
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
