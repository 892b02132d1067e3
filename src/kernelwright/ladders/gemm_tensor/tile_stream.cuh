// Copies that run on into the next tile of a persistent block.
#pragma once

#include "mainloop.cuh"

// The tile that copies are ahead in, and how many of its k-tiles are left to copy.
template <class T>
struct TileStream : TileLoader<T> {
    const GemmParams& p;
    int tile = blockIdx.x, k_tiles = 0;

    __device__ TileStream(const GemmParams& p) : p(p) { start_tile(); }
    // After the last tile, copies write zeros.
    __device__ void start_tile() {
        k_tiles = p.k_tiles();
        const TileOrigin origin = grouped_tile<T>(p, min(tile, p.template tiles<T>() - 1));
        this->start(p, origin.row, origin.column);
        if (tile >= p.template tiles<T>()) this->k_left = 0;
        tile += gridDim.x;
    }
    __device__ void count(int copied) {
        if ((k_tiles -= copied) == 0) start_tile();
    }
};
