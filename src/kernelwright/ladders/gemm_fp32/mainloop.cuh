// Main loop of the last rungs: a tile of 128 x 256, 256 threads, k-tiles of 16, and only unavoidable bounds checks: the
// partial k-tile comes first, rows of A beyond M repeat the last row, and columns of B beyond N are zeros.
#pragma once

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
#ifndef NUM_STAGES
#define NUM_STAGES 4  // of B: one is read, the others are in flight
#endif
#define A_BUFFER_BYTES 16384u  // a power of two: the two buffers of A differ in one address bit
#define B_STAGES_OFFSET (2 * A_BUFFER_BYTES)
#define B_STAGE_BYTES (BK * BN * 4u)
#define LAST_STAGE (B_STAGES_OFFSET + (NUM_STAGES - 1) * B_STAGE_BYTES)
#define THREADS 256
#define GROUP_M 8  // rows of tiles that are rasterized together, so that their operands stay in the L2

struct GemmParams {
    const float *a, *b, *c;
    float* out;
    int M, N, K;
    float alpha, beta;
    __device__ int tiles_n() const { return (N + BN - 1) / BN; }
    __device__ int tiles_m() const { return (M + BM - 1) / BM; }
    __device__ int k_tiles() const { return max(1, (K + BK - 1) / BK); }
    // Whether every row of every matrix is 16-byte aligned.
    __device__ bool is_aligned() const {
        const auto pointers = reinterpret_cast<unsigned long long>(a) | reinterpret_cast<unsigned long long>(b) |
                              reinterpret_cast<unsigned long long>(c) | reinterpret_cast<unsigned long long>(out);
        return pointers % 16 == 0 && K % 4 == 0 && N % 4 == 0;
    }
    __device__ int first_row(int tile) const {
        const int group = tile / (GROUP_M * tiles_n());
        return (group * GROUP_M + tile % (GROUP_M * tiles_n()) % min(GROUP_M, tiles_m() - group * GROUP_M)) * BM;
    }
    __device__ int first_column(int tile) const {
        const int group = tile / (GROUP_M * tiles_n());
        return tile % (GROUP_M * tiles_n()) / min(GROUP_M, tiles_m() - group * GROUP_M) * BN;
    }
};

// Rows and columns of a thread's accumulators in its tile. Bits of the lane index, lowest first: m0 n0 m1 n1 n2.
struct ThreadTile {
    int m, n;
    __device__ ThreadTile(int thread) {
        const int lane = thread % 32, warp = thread / 32;
        m = warp / (BN / WN) * WM + ((lane & 1) | ((lane >> 1) & 2)) * 4;
        n = warp % (BN / WN) * WN + (((lane >> 1) & 1) | ((lane >> 2) & 6)) * 4;
    }
    __device__ int row(int i) const { return m + i / 4 * 16 + i % 4; }
    __device__ int column(int j) const { return n + j * 8; }
};

__device__ __forceinline__ char* shared_bytes() {
    extern __shared__ __align__(16) char held[];
    return held;
}

// Stores four consecutive elements plus beta C.
template <bool aligned>
__device__ __forceinline__ void store_with_beta(const GemmParams& p, int row, int column, float4 value) {
    if (row >= p.M || column >= p.N) return;
    const long long offset = (long long)row * p.N + column;
    if (aligned) {
        if (p.beta != 0.0f) {
            const float4 c_value = *reinterpret_cast<const float4*>(p.c + offset);
            value.x += p.beta * c_value.x;
            value.y += p.beta * c_value.y;
            value.z += p.beta * c_value.z;
            value.w += p.beta * c_value.w;
        }
        *reinterpret_cast<float4*>(p.out + offset) = value;
        return;
    }
    const float values[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (column + i < p.N)
            p.out[offset + i] = p.beta != 0.0f ? values[i] + p.beta * p.c[offset + i] : values[i];
}

// Accumulates the k-tiles [k_begin, k_end) of a tile. K-tile 0 starts before k = 0, so that the last one ends at K.
template <bool aligned>
__device__ __forceinline__ void mainloop(const GemmParams& p, int tile, int k_begin, int k_end, float (&acc)[TM][TN]) {
    char* const smem = shared_bytes();
    const int thread = threadIdx.x, k_offset = p.k_tiles() * BK - p.K, k_start = k_begin * BK - k_offset;
    const int first_row = p.first_row(tile), first_column = p.first_column(tile);
    const int a_row = thread / 2, a_k = thread % 2 * 4, b_k = thread / 16, b_col = thread % 16 * 4;
    const float* a_ptr = p.a + (long long)min(first_row + a_row, p.M - 1) * p.K + k_start + a_k;
    const float* b_ptr = p.b + (long long)(k_start + b_k) * p.N + first_column + b_col;
    const long long b_stride = (long long)BK * p.N;
    const ThreadTile thread_tile(thread);
    float4 prefetch_a[2] = {};
    auto load_a_global = [&](int min_k, bool pred) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float* from = a_ptr + i * 8;
            const int k = a_k + i * 8 - min_k;
            if (aligned) {
                kw::ld_global_nc_v4(prefetch_a[i], from, pred && k >= 0);
            } else {
                prefetch_a[i] = make_float4(pred && k >= 0 ? from[0] : 0.0f, pred && k >= -1 ? from[1] : 0.0f,
                                            pred && k >= -2 ? from[2] : 0.0f, pred && k >= -3 ? from[3] : 0.0f);
            }
        }
        a_ptr += BK;
    };
    auto store_a_smem = [&](unsigned a_buffer) {
        float* to = reinterpret_cast<float*>(smem + a_buffer) + a_k * LDA + a_row;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            to[(i * 8 + 0) * LDA] = prefetch_a[i].x;
            to[(i * 8 + 1) * LDA] = prefetch_a[i].y;
            to[(i * 8 + 2) * LDA] = prefetch_a[i].z;
            to[(i * 8 + 3) * LDA] = prefetch_a[i].w;
        }
    };
    auto copy_b_async = [&](unsigned stage, int min_k, bool pred) {
        float* to = reinterpret_cast<float*>(smem + stage) + b_k * BN + b_col;
#pragma unroll
        for (int i = 0; i < BN; i += 64) {
            const int column = first_column + b_col + i;
            if (aligned) {
                kw::cp_async_cg_16(to + i, b_ptr + i, pred && b_k >= min_k && column < p.N);
            } else {
#pragma unroll
                for (int n = 0; n < 4; ++n)
                    kw::cp_async_ca_4(to + i + n, b_ptr + i + n, pred && b_k >= min_k && column + n < p.N);
            }
        }
        kw::cp_async_commit_group();
        b_ptr += b_stride;
    };
    float frag_a[2][TM], frag_b[2][TN];
    auto load_fragments = [&](int to, unsigned a_buffer, unsigned stage, int k) {
        const float* from_a = reinterpret_cast<const float*>(smem + a_buffer) + k * LDA + thread_tile.m;
        const float* from_b = reinterpret_cast<const float*>(smem + stage) + k * BN + thread_tile.n;
#pragma unroll
        for (int m = 0; m < TM; m += 4)
            *reinterpret_cast<float4*>(&frag_a[to][m]) = *reinterpret_cast<const float4*>(from_a + m * 4);
#pragma unroll
        for (int n = 0; n < TN; n += 4)
            *reinterpret_cast<float4*>(&frag_b[to][n]) = *reinterpret_cast<const float4*>(from_b + n * 8);
    };
    int k_tiles = p.K ? k_end - k_begin : 0;
    const int min_k = k_begin == 0 ? k_offset : 0;
    __syncthreads();  // all threads have finished reading the previous tile
    load_a_global(min_k, k_tiles > 0);
#pragma unroll
    for (int i = 0; i < NUM_STAGES - 1; ++i)
        copy_b_async(B_STAGES_OFFSET + i * B_STAGE_BYTES, i == 0 ? min_k : 0, k_tiles > i);
    store_a_smem(0);
    load_a_global(0, k_tiles > 1);
    kw::cp_async_wait_group<NUM_STAGES - 2>();
    __syncthreads();
    load_fragments(0, 0, B_STAGES_OFFSET, 0);
    unsigned a_buffer = 0, read_stage = B_STAGES_OFFSET, write_stage = LAST_STAGE;
    for (; k_tiles > 0; --k_tiles) {
        const unsigned next_stage = read_stage == LAST_STAGE ? B_STAGES_OFFSET : read_stage + B_STAGE_BYTES;
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            if (k == 0) copy_b_async(write_stage, 0, k_tiles >= NUM_STAGES);
            if (k == BK - 2) {
                store_a_smem(a_buffer ^ A_BUFFER_BYTES);
                load_a_global(0, k_tiles > 2);
            }
            if (k < BK - 1) {
                load_fragments((k + 1) % 2, a_buffer, read_stage, k + 1);
            } else {
                kw::cp_async_wait_group<NUM_STAGES - 2>();
                __syncthreads();
                load_fragments(0, a_buffer ^ A_BUFFER_BYTES, next_stage, 0);
            }
#pragma unroll
            for (int m = 0; m < TM; ++m)  // alternating direction, so that the last column is reused first
#pragma unroll
                for (int j = 0; j < TN; ++j) {
                    const int n = m % 2 ? TN - 1 - j : j;
                    acc[m][n] += frag_a[k % 2][m] * frag_b[k % 2][n];
                }
        }
        a_buffer ^= A_BUFFER_BYTES;
        read_stage = next_stage;
        write_stage = write_stage == LAST_STAGE ? B_STAGES_OFFSET : write_stage + B_STAGE_BYTES;
    }
}
