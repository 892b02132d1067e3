// A persistent block, whose copies run on into its next tile.
#pragma once

#include "epilogue.cuh"

// The tile that copies are in, ahead of the products, and how many of its k-tiles are left to copy.
template <class T>
struct TileStream : TileLoader<T> {
    const GemmParams& p;
    int tile = blockIdx.x, k_tiles;

    __device__ TileStream(const GemmParams& p) : p(p) { start_tile(); }
    __device__ void start_tile() {
        const TileOrigin origin = grouped_tile<T>(p, tile);
        this->start(p, origin.row, origin.column);
        k_tiles = p.k_tiles();
    }
    // After the last tile, copies write zeros.
    __device__ void count(int copied) {
        if ((k_tiles -= copied) > 0) return;
        tile += gridDim.x;
        if (tile < p.template tiles<T>()) {
            start_tile();
        } else {
            this->k_left = 0;
            k_tiles = p.k_tiles();
        }
    }
};

// Shared memory of a persistent block: the ring is full when a tile is stored, so each warp has memory of its own.
template <class T>
constexpr int kMultiTileBytes = T::kRingBytes + T::kThreads / 32 * kEpilogueBytes;

// Tiles blockIdx.x, blockIdx.x + gridDim.x, ...
template <class T, class Sync>
__device__ __forceinline__ void compute_tiles(const GemmParams& p, Sync sync) {
    unsigned char* const ring = dynamic_shared();
    TileStream<T> stream(p);
    Mainloop<T, TileStream<T>, Sync> mainloop(stream, ring, sync);
    mainloop.fill();
    for (int tile = blockIdx.x; tile < p.template tiles<T>(); tile += gridDim.x) {
        typename T::Accumulators acc = {};
#pragma unroll 1
        for (int left = p.k_tiles(); left > 0;) {  // no branch in the main loop: it ends where copies change the tile
            const int k_tiles = min(left, stream.k_tiles);
            mainloop.run(acc, k_tiles);
            stream.count(k_tiles);
            left -= k_tiles;
        }
        const TileOrigin origin = grouped_tile<T>(p, tile);
        store_chunks<T>(acc, ring + T::kRingBytes + threadIdx.x / 32 * kEpilogueBytes, p, origin.row + T::warp_m(),
                        origin.column + T::warp_n());
    }
    mainloop.drain();
}
