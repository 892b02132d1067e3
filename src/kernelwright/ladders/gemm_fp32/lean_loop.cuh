// The loop of the last rungs: a tile of 128 x 256, 256 threads, slabs of sixteen k, and in the loop no guard that a block
// does not need: what reaches over the edge of K comes first, rows of A beyond M repeat the last one, and columns of B
// beyond N are zeros.
#pragma once

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
#ifndef TILES
#define TILES 4  // of B: one is read, the others are under way
#endif
#define HALF 16384u          // bytes from one tile of A to the other: one flips a bit
#define RING (2 * HALF)      // where the tiles of B begin
#define STEP (BK * BN * 4u)  // bytes of a tile of B
#define LAST (RING + (TILES - 1) * STEP)
#define THREADS 256
#define GROUP 8  // rows of tiles that are computed side by side, so that what they read stays in the L2

struct Product {
    const float *a, *b, *c;
    float* out;
    int M, N, K;
    float alpha, beta;
    __device__ int across() const { return (N + BN - 1) / BN; }
    __device__ int down() const { return (M + BM - 1) / BM; }
    __device__ int slabs() const { return max(1, (K + BK - 1) / BK); }
    // Whether every row begins at a multiple of sixteen bytes.
    __device__ bool wide() const {
        const auto places = reinterpret_cast<unsigned long long>(a) | reinterpret_cast<unsigned long long>(b) |
                            reinterpret_cast<unsigned long long>(c) | reinterpret_cast<unsigned long long>(out);
        return places % 16 == 0 && K % 4 == 0 && N % 4 == 0;
    }
    __device__ int first_row(int tile) const {
        const int group = tile / (GROUP * across());
        return (group * GROUP + tile % (GROUP * across()) % min(GROUP, down() - group * GROUP)) * BM;
    }
    __device__ int first_column(int tile) const {
        const int group = tile / (GROUP * across());
        return tile % (GROUP * across()) / min(GROUP, down() - group * GROUP) * BN;
    }
};

// Where a thread's sums lie in its tile. The lane's bits, from the lowest: m0 n0 m1 n1 n2.
struct Place {
    int m, n;
    __device__ Place(int thread) {
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

// Stores four neighbours with beta C added.
template <bool wide>
__device__ __forceinline__ void store(const Product& p, int row, int column, float4 held) {
    if (row >= p.M || column >= p.N) return;
    const long long at = (long long)row * p.N + column;
    if (wide) {
        if (p.beta != 0.0f) {
            const float4 before = *reinterpret_cast<const float4*>(p.c + at);
            held.x += p.beta * before.x;
            held.y += p.beta * before.y;
            held.z += p.beta * before.z;
            held.w += p.beta * before.w;
        }
        *reinterpret_cast<float4*>(p.out + at) = held;
        return;
    }
    const float each[4] = {held.x, held.y, held.z, held.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (column + i < p.N) p.out[at + i] = p.beta != 0.0f ? each[i] + p.beta * p.c[at + i] : each[i];
}

// Adds the slabs from `first` to before `last` of a tile. Slab 0 begins so far before k = 0 that the last one ends at K.
template <bool wide>
__device__ __forceinline__ void multiply(const Product& p, int tile, int first, int last, float (&sum)[TM][TN]) {
    char* const held = shared_bytes();
    const int thread = threadIdx.x, skip = p.slabs() * BK - p.K, start = first * BK - skip;
    const int first_row = p.first_row(tile), first_column = p.first_column(tile);
    const int ar = thread / 2, ak = thread % 2 * 4, bk = thread / 16, bc = thread % 16 * 4;
    const float* from_a = p.a + (long long)min(first_row + ar, p.M - 1) * p.K + start + ak;
    const float* from_b = p.b + (long long)(start + bk) * p.N + first_column + bc;
    const long long step_b = (long long)BK * p.N;
    const Place place(thread);
    float4 next_a[2] = {};
    auto fetch_a = [&](int from, bool there) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float* at = from_a + i * 8;
            const int k = ak + i * 8 - from;
            if (wide) {
                kw::ld_global_nc_v4(next_a[i], at, there && k >= 0);
            } else {
                next_a[i] = make_float4(there && k >= 0 ? at[0] : 0.0f, there && k >= -1 ? at[1] : 0.0f,
                                        there && k >= -2 ? at[2] : 0.0f, there && k >= -3 ? at[3] : 0.0f);
            }
        }
        from_a += BK;
    };
    auto keep_a = [&](unsigned half) {
        float* at = reinterpret_cast<float*>(held + half) + ak * LDA + ar;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            at[(i * 8 + 0) * LDA] = next_a[i].x;
            at[(i * 8 + 1) * LDA] = next_a[i].y;
            at[(i * 8 + 2) * LDA] = next_a[i].z;
            at[(i * 8 + 3) * LDA] = next_a[i].w;
        }
    };
    auto copy_b = [&](unsigned to, int from, bool there) {
        float* at = reinterpret_cast<float*>(held + to) + bk * BN + bc;
#pragma unroll
        for (int i = 0; i < BN; i += 64) {
            const int column = first_column + bc + i;
            if (wide) {
                kw::cp_async_cg_16(at + i, from_b + i, there && bk >= from && column < p.N);
            } else {
#pragma unroll
                for (int n = 0; n < 4; ++n)
                    kw::cp_async_ca_4(at + i + n, from_b + i + n, there && bk >= from && column + n < p.N);
            }
        }
        kw::cp_async_commit_group();
        from_b += step_b;
    };
    float left[2][TM], right[2][TN];
    auto read = [&](int to, unsigned half, unsigned from, int k) {
        const float* at_a = reinterpret_cast<const float*>(held + half) + k * LDA + place.m;
        const float* at_b = reinterpret_cast<const float*>(held + from) + k * BN + place.n;
#pragma unroll
        for (int m = 0; m < TM; m += 4)
            *reinterpret_cast<float4*>(&left[to][m]) = *reinterpret_cast<const float4*>(at_a + m * 4);
#pragma unroll
        for (int n = 0; n < TN; n += 4)
            *reinterpret_cast<float4*>(&right[to][n]) = *reinterpret_cast<const float4*>(at_b + n * 8);
    };
    int slabs = p.K ? last - first : 0;
    const int from = first == 0 ? skip : 0;
    __syncthreads();  // a tile before this one has been read
    fetch_a(from, slabs > 0);
#pragma unroll
    for (int i = 0; i < TILES - 1; ++i) copy_b(RING + i * STEP, i == 0 ? from : 0, slabs > i);
    keep_a(0);
    fetch_a(0, slabs > 1);
    kw::cp_async_wait_group<TILES - 2>();
    __syncthreads();
    read(0, 0, RING, 0);
    unsigned half = 0, full = RING, fill = LAST;
    for (; slabs > 0; --slabs) {
        const unsigned next = full == LAST ? RING : full + STEP;
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            if (k == 0) copy_b(fill, 0, slabs >= TILES);
            if (k == BK - 2) {
                keep_a(half ^ HALF);
                fetch_a(0, slabs > 2);
            }
            if (k < BK - 1) {
                read((k + 1) % 2, half, full, k + 1);
            } else {
                kw::cp_async_wait_group<TILES - 2>();
                __syncthreads();
                read(0, half ^ HALF, next, 0);
            }
#pragma unroll
            for (int m = 0; m < TM; ++m)  // back and forth: the column that was last comes first again
#pragma unroll
                for (int j = 0; j < TN; ++j) {
                    const int n = m % 2 ? TN - 1 - j : j;
                    sum[m][n] += left[k % 2][m] * right[k % 2][n];
                }
        }
        half ^= HALF;
        full = next;
        fill = fill == LAST ? RING : fill + STEP;
    }
}
