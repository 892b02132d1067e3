// Stores of 16 bytes through shared memory, and a block that computes one tile with them.
#pragma once

#include "mainloop.cuh"

constexpr int kEpilogueBytes = 2048;  // of a warp

// Rounds a warp's accumulators and stores them, 16 rows at a time through shared memory of its own: eight lanes then
// write a row of 128 bytes. Rows have 64 columns, so the tile is swizzled as those of the operands.
template <class T>
__device__ __forceinline__ void store_chunks(const typename T::Accumulators& acc, unsigned char* smem,
                                             const GemmParams& p, int first_row, int first_column) {
    static_assert(T::kWarpN * 2 == kw::kTileRowBytes, "rows of 128 bytes");
    const int lane = threadIdx.x % 32, chunk = lane % 8, column = first_column + chunk * 8;
    const kw::FragmentLane fragment(lane);
#pragma unroll
    for (int m = 0; m < T::kTilesM; ++m) {
#pragma unroll
        for (int n = 0; n < T::kTilesN; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                *reinterpret_cast<unsigned*>(smem + kw::swizzle_128b(half * 8 + fragment.row, n) + fragment.pair * 2) =
                    kw::pack<kw::bf16>(acc[m][n][2 * half], acc[m][n][2 * half + 1]);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = i * 4 + lane / 8, out_row = first_row + m * 16 + row;
            const uint4 eight = *reinterpret_cast<const uint4*>(smem + kw::swizzle_128b(row, chunk));
            if (out_row < p.M && column < p.N)
                *reinterpret_cast<uint4*>(p.out + (long long)out_row * p.N + column) = eight;
        }
        __syncwarp();
    }
}

// The tile of this block, through one ring.
template <class T>
__device__ __forceinline__ void compute_tile(const GemmParams& p) {
    unsigned char* const ring = dynamic_shared();
    const TileOrigin tile = grouped_tile<T>(p, blockIdx.x);
    TileLoader<T> loader;
    loader.start(p, tile.row, tile.column);
    typename T::Accumulators acc = {};
    Mainloop<T> mainloop(loader, ring);
    mainloop.fill();
    mainloop.run(acc, p.k_tiles());
    mainloop.drain();
    __syncthreads();  // the ring is free
    store_chunks<T>(acc, ring + threadIdx.x / 32 * kEpilogueBytes, p, tile.row + T::warp_m(),
                    tile.column + T::warp_n());
}
