// Copies run while the threads compute: B by cp.async through a ring of tiles, A through registers, one slab ahead.
//
// rung: question   Can a block fetch the next tiles while it works on these?
// rung: hypothesis Two barriers a slab and the wait for its tiles go, one barrier stays: what shared memory holds next is
// rung: hypothesis under way for a whole slab. Registers hold two steps of k, so that LDS is waited for by nobody. With
// rung: hypothesis nothing to wait for, one block of 128 x 256 suffices, and a thread's 16 x 8 sums need 6 LDS.128 for
// rung: hypothesis 128 FMAs where 8 x 8 need 4 for 64. About 1.1 times faster.
// rung: next       1.15 times faster where there are tiles enough; at 1024 there are 32 for 132 processors, half as fast.
// rung: next       A twelfth of what the loop issues is neither an FMA nor a read of its operands: guards and addresses.
//
// kw: entry  gemm_asynchronous
// kw: dims   a: float32[M, K]; b: float32[K, N]; c: float32[M, N]
// kw: out    out: float32[M, N]
// kw: grid   cdiv(N, 256), cdiv(M, 128)
// kw: block  256
// kw: shared 4 * (2 * 16 * 132 + 4 * 16 * 256)
// kw: args   a, b, c, out, M, N, K, alpha, beta

#include "four.cuh"
#include "kw/cp_async.cuh"
#include "kw/ld_global.cuh"

#define BM 128
#define BN 256
#define BK 16
#define WM 64
#define WN 64
#define TM 16
#define TN 8
#define LDA (BM + 4)
#define TILES 4  // of B: one is read, the others are under way
#define THREADS 256
#define GROUP 8  // rows of tiles that are computed side by side, so that what they read stays in the L2

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm_asynchronous(const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
                  float* __restrict__ out, int M, int N, int K, float alpha, float beta) {
    extern __shared__ __align__(16) float held[];
    float* const tiles_a = held;                 // [2][BK][LDA]
    float* const tiles_b = held + 2 * BK * LDA;  // [TILES][BK][BN]
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    // the lane's bits, from the lowest: m0 n0 m1 n1 n2
    const int lane_m = (lane & 1) | ((lane >> 1) & 2), lane_n = ((lane >> 1) & 1) | ((lane >> 2) & 6);
    const int warp_m = warp / (BN / WN) * WM + lane_m * 4, warp_n = warp % (BN / WN) * WN + lane_n * 4;
    const int across = gridDim.x, block = blockIdx.y * across + blockIdx.x, group = block / (GROUP * across);
    const int rows = min(GROUP, gridDim.y - group * GROUP);
    const int first_row = (group * GROUP + block % (GROUP * across) % rows) * BM;
    const int first_column = block % (GROUP * across) / rows * BN;
    const bool wide_a = even(a, K), wide_b = even(b, N), wide_c = even(c, N) && even(out, N);
    const int ar = thread / 2, ak = thread % 2 * 4, br = thread / (BN / 4), bc = thread % (BN / 4) * 4;
    float4 next_a[2];
    auto fetch_a = [&](int start) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int k = start + ak + i * 8, left = first_row + ar < M ? K - k : 0;
            const float* from = a + (long long)(first_row + ar) * K + k;
            next_a[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (wide_a) {
                kw::ld_global_nc_v4(next_a[i], from, left > 0);
            } else {
                next_a[i] = four(from, left, false);
            }
        }
    };
    auto keep_a = [&](int half) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float* at = tiles_a + (half * BK + ak + i * 8) * LDA + ar;
            at[0 * LDA] = next_a[i].x;
            at[1 * LDA] = next_a[i].y;
            at[2 * LDA] = next_a[i].z;
            at[3 * LDA] = next_a[i].w;
        }
    };
    auto copy_b = [&](int tile, int start) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int k = start + br + i * 4, column = first_column + bc;
            float* to = tiles_b + (tile * BK + br + i * 4) * BN + bc;
            const float* from = b + (long long)k * N + column;
            if (wide_b) {
                kw::cp_async_cg_16(to, from, k < K && column < N);
            } else {
#pragma unroll
                for (int n = 0; n < 4; ++n) kw::cp_async_ca_4(to + n, from + n, k < K && column + n < N);
            }
        }
        kw::cp_async_commit_group();
    };
    float sum[TM][TN] = {};
    float left[2][TM], right[2][TN];
    auto read = [&](int to, int half, int tile, int k) {
#pragma unroll
        for (int m = 0; m < TM; m += 4)
            *reinterpret_cast<float4*>(&left[to][m]) =
                *reinterpret_cast<const float4*>(tiles_a + (half * BK + k) * LDA + warp_m + m * 4);
#pragma unroll
        for (int n = 0; n < TN; n += 4)
            *reinterpret_cast<float4*>(&right[to][n]) =
                *reinterpret_cast<const float4*>(tiles_b + (tile * BK + k) * BN + warp_n + n * 8);
    };
    fetch_a(0);
#pragma unroll
    for (int tile = 0; tile < TILES - 1; ++tile) copy_b(tile, tile * BK);
    keep_a(0);
    fetch_a(BK);
    kw::cp_async_wait_group<TILES - 2>();
    __syncthreads();
    read(0, 0, 0, 0);
    int half = 0, tile = 0;
    for (int start = 0; start < K; start += BK) {
        const int next = (tile + 1) % TILES;
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            if (k == 0) copy_b((tile + TILES - 1) % TILES, start + (TILES - 1) * BK);
            if (k == BK - 2) {
                keep_a(half ^ 1);
                fetch_a(start + 2 * BK);
            }
            if (k < BK - 1) {
                read((k + 1) % 2, half, tile, k + 1);
            } else {
                kw::cp_async_wait_group<TILES - 2>();
                __syncthreads();
                read(0, half ^ 1, next, 0);
            }
#pragma unroll
            for (int m = 0; m < TM; ++m)
#pragma unroll
                for (int n = 0; n < TN; ++n) sum[m][n] += left[k % 2][m] * right[k % 2][n];
        }
        half ^= 1;
        tile = next;
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
