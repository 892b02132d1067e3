// Orders in which clusters take the tiles of the output.
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
