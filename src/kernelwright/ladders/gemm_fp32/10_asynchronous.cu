// Multistage pipeline: B is copied by cp.async through a ring of stages, A through registers, one k-tile ahead.
//
// rung: question   Can a block load the next tiles while it computes on the current ones?
// rung: hypothesis One barrier per k-tile instead of two, and no wait for loads: the next k-tile is in flight for a
// rung: hypothesis whole iteration. Fragments are double-buffered in registers, which hides the latency of LDS. Without
// rung: hypothesis stalls one block of 128 x 256 per SM suffices, and a thread tile of 16 x 8 needs 6 LDS.128 for 128
// rung: hypothesis FMAs where 8 x 8 needs 4 for 64. About 1.1 times faster.
// rung: next       1.15 times faster where there are enough tiles; at 1024 there are 32 for 132 SMs, half as fast. A
// rung: next       twelfth of the instructions in the loop are neither FMAs nor operand loads: bounds checks,
// rung: next       addresses.
//
// kw: entry  gemm_asynchronous
// kw: dims   a: float32[M, K]; b: float32[K, N]; c: float32[M, N]
// kw: out    out: float32[M, N]
// kw: grid   cdiv(N, 256), cdiv(M, 128)
// kw: block  256
// kw: shared 4 * (2 * 16 * 132 + 4 * 16 * 256)
// kw: args   a, b, c, out, M, N, K, alpha, beta

#include "float4.cuh"
#include "kw/ptx/cp_async.cuh"
#include "kw/ptx/ld_global.cuh"

#define BM 128
#define BN 256
#define BK 16
#define WM 64
#define WN 64
#define TM 16
#define TN 8
#define LDA (BM + 4)
#define NUM_STAGES 4  // of B: one is read, the others are in flight
#define THREADS 256
#define GROUP_M 8  // rows of tiles that are rasterized together, so that their operands stay in the L2

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm_asynchronous(const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
                  float* __restrict__ out, int M, int N, int K, float alpha, float beta) {
    extern __shared__ __align__(16) float held[];
    float* const tiles_a = held;                 // [2][BK][LDA]
    float* const tiles_b = held + 2 * BK * LDA;  // [NUM_STAGES][BK][BN]
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    // bits of the lane index, lowest first: m0 n0 m1 n1 n2
    const int lane_m = (lane & 1) | ((lane >> 1) & 2), lane_n = ((lane >> 1) & 1) | ((lane >> 2) & 6);
    const int warp_m = warp / (BN / WN) * WM + lane_m * 4, warp_n = warp % (BN / WN) * WN + lane_n * 4;
    const int tiles_n = gridDim.x, block = blockIdx.y * tiles_n + blockIdx.x, group = block / (GROUP_M * tiles_n);
    const int group_rows = min(GROUP_M, gridDim.y - group * GROUP_M);
    const int first_row = (group * GROUP_M + block % (GROUP_M * tiles_n) % group_rows) * BM;
    const int first_column = block % (GROUP_M * tiles_n) / group_rows * BN;
    const bool aligned_a = is_aligned4(a, K), aligned_b = is_aligned4(b, N);
    const bool aligned_c = is_aligned4(c, N) && is_aligned4(out, N);
    const int a_row = thread / 2, a_k = thread % 2 * 4, b_row = thread / (BN / 4), b_col = thread % (BN / 4) * 4;
    float4 prefetch_a[2];
    auto load_a_global = [&](int k_start) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int k = k_start + a_k + i * 8, valid = first_row + a_row < M ? K - k : 0;
            const float* from = a + (long long)(first_row + a_row) * K + k;
            prefetch_a[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (aligned_a) {
                kw::ld_global_nc_v4(prefetch_a[i], from, valid > 0);
            } else {
                prefetch_a[i] = load_float4(from, valid, false);
            }
        }
    };
    auto store_a_smem = [&](int a_buffer) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float* to = tiles_a + (a_buffer * BK + a_k + i * 8) * LDA + a_row;
            to[0 * LDA] = prefetch_a[i].x;
            to[1 * LDA] = prefetch_a[i].y;
            to[2 * LDA] = prefetch_a[i].z;
            to[3 * LDA] = prefetch_a[i].w;
        }
    };
    auto copy_b_async = [&](int stage, int k_start) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int k = k_start + b_row + i * 4, column = first_column + b_col;
            float* to = tiles_b + (stage * BK + b_row + i * 4) * BN + b_col;
            const float* from = b + (long long)k * N + column;
            if (aligned_b) {
                kw::cp_async_cg_16(to, from, k < K && column < N);
            } else {
#pragma unroll
                for (int n = 0; n < 4; ++n) kw::cp_async_ca_4(to + n, from + n, k < K && column + n < N);
            }
        }
        kw::cp_async_commit_group();
    };
    float acc[TM][TN] = {};
    float frag_a[2][TM], frag_b[2][TN];
    auto load_fragments = [&](int to, int a_buffer, int stage, int k) {
#pragma unroll
        for (int m = 0; m < TM; m += 4)
            *reinterpret_cast<float4*>(&frag_a[to][m]) =
                *reinterpret_cast<const float4*>(tiles_a + (a_buffer * BK + k) * LDA + warp_m + m * 4);
#pragma unroll
        for (int n = 0; n < TN; n += 4)
            *reinterpret_cast<float4*>(&frag_b[to][n]) =
                *reinterpret_cast<const float4*>(tiles_b + (stage * BK + k) * BN + warp_n + n * 8);
    };
    load_a_global(0);
#pragma unroll
    for (int stage = 0; stage < NUM_STAGES - 1; ++stage) copy_b_async(stage, stage * BK);
    store_a_smem(0);
    load_a_global(BK);
    kw::cp_async_wait_group<NUM_STAGES - 2>();
    __syncthreads();
    load_fragments(0, 0, 0, 0);
    int a_buffer = 0, stage = 0;
    for (int k_start = 0; k_start < K; k_start += BK) {
        const int next_stage = (stage + 1) % NUM_STAGES;
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            if (k == 0) copy_b_async((stage + NUM_STAGES - 1) % NUM_STAGES, k_start + (NUM_STAGES - 1) * BK);
            if (k == BK - 2) {
                store_a_smem(a_buffer ^ 1);
                load_a_global(k_start + 2 * BK);
            }
            if (k < BK - 1) {
                load_fragments((k + 1) % 2, a_buffer, stage, k + 1);
            } else {
                kw::cp_async_wait_group<NUM_STAGES - 2>();
                __syncthreads();
                load_fragments(0, a_buffer ^ 1, next_stage, 0);
            }
#pragma unroll
            for (int m = 0; m < TM; ++m)
#pragma unroll
                for (int n = 0; n < TN; ++n) acc[m][n] += frag_a[k % 2][m] * frag_b[k % 2][n];
        }
        a_buffer ^= 1;
        stage = next_stage;
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
