// The sums of a tile to global memory: stmatrix to shared memory in the layout of a 128-byte swizzle, then TMA, which
// clips them to the output and runs while the next tile is multiplied.
#pragma once

#include "kw/ptx/ldmatrix.cuh"
#include "tile.cuh"

constexpr int kStoreColumns = 64, kStoreBytes = 64 * kRowBytes, kStoreBuffers = 2;

// Stores a fragment of 64 rows, whose first row and column are given.
//   buffers: kStoreBuffers of kStoreBytes, of this warpgroup alone
//   buffer: the one to use next
//   barrier: a named barrier of this warpgroup alone
template <int kBlockN>
__device__ __forceinline__ void tma_store_fragment(const kw::TensorMap* out_map, const float (&d)[kBlockN / 2],
                                                   unsigned char* buffers, int& buffer, int row, int column,
                                                   int barrier) {
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32, matrix = lane / 8, r = lane % 8;
    const bool is_first_thread = threadIdx.x % 128 == 0;
    static_assert(kBlockN % kStoreColumns == 0);
#pragma unroll
    for (int at = 0; at < kBlockN; at += kStoreColumns) {
        unsigned char* const smem = buffers + buffer * kStoreBytes;
        buffer ^= 1;
        if (is_first_thread) kw::cp_async_bulk_wait_group_read<kStoreBuffers - 1>();  // the last store from this buffer
        kw::bar_sync(barrier, 128);
#pragma unroll
        for (int j = 0; j < kStoreColumns / 8; j += 2) {  // two blocks of eight columns, rows 0-7 and 8-15 of a warp
            const float* const from = d + at / 2 + 4 * j;
            const unsigned bits[4] = {kw::pack<kw::bf16>(from[0], from[1]), kw::pack<kw::bf16>(from[2], from[3]),
                                      kw::pack<kw::bf16>(from[4], from[5]), kw::pack<kw::bf16>(from[6], from[7])};
            kw::stmatrix_x4(smem + (warp * 16 + matrix % 2 * 8 + r) * kRowBytes + ((j + matrix / 2) ^ r) * 16, bits);
        }
        kw::fence_proxy_async();
        kw::bar_sync(barrier, 128);
        if (is_first_thread) {
            kw::cp_async_bulk_tensor_2d_store(out_map, smem, column + at, row);
            kw::cp_async_bulk_commit_group();
        }
    }
}
