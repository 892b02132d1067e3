// Orders in which persistent clusters take the tiles of the output.
#pragma once

#include "kw/scheduler/tile_scheduler.cuh"

struct RowMajor {
    static __device__ __forceinline__ kw::TileIndex at(int index, int tiles_m, int tiles_n) {
        return {index / tiles_n, index % tiles_n, 0};
    }
};

// Bands of kRows rows, walked column by column.
template <int kRows>
struct Grouped {
    static __device__ __forceinline__ kw::TileIndex at(int index, int tiles_m, int tiles_n) {
        return kw::grouped_raster(index, tiles_m, tiles_n, kRows);
    }
};

struct Hilbert {
    static __device__ __forceinline__ kw::TileIndex at(int index, int tiles_m, int tiles_n) {
        return kw::hilbert_rectangle(index, tiles_m, tiles_n);
    }
};

constexpr int kListedTiles = 384;

// The tiles of one cluster: every `step`-th of the order. The threads of a block compute the first kListedTiles of them
// at its start, one each: a position along a curve takes a microsecond, in which nothing would be loaded.
template <typename Order>
struct TileList {
    int* const listed;  // in shared memory
    const int tiles_m, tiles_n, first, step;

    __device__ __forceinline__ int count() const { return (tiles_m * tiles_n - first + step - 1) / step; }
    __device__ __forceinline__ void fill() const {  // a barrier of the block follows
        const int i = threadIdx.x;
        if (i >= kListedTiles || i >= count()) return;
        const kw::TileIndex index = Order::at(first + i * step, tiles_m, tiles_n);
        listed[i] = index.m * tiles_n + index.n;
    }
    __device__ __forceinline__ kw::TileIndex operator[](int i) const {
        if (i >= kListedTiles) return Order::at(first + i * step, tiles_m, tiles_n);
        return {listed[i] / tiles_n, listed[i] % tiles_n, 0};
    }
};
