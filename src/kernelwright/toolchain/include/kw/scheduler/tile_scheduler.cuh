// Orders in which persistent blocks, or clusters, take the tiles of an output.
#pragma once

namespace kw {

struct TileIndex {
    int m, n, batch;
};

// Tile `index` of a batch of grids in bands of `group` rows, walked column by column within a band: tiles that run at
// the same time share their rows of A and columns of B in the L2.
__device__ __forceinline__ TileIndex grouped_raster(int index, int tiles_m, int tiles_n, int group) {
    const int tiles = tiles_m * tiles_n, batch = index / tiles, within = index - batch * tiles;
    const int band_tiles = group * tiles_n, band = within / band_tiles, first_m = band * group;
    const int rows = min(group, tiles_m - first_m), at = within - band * band_tiles;
    return {first_m + at % rows, at / rows, batch};
}

// Tile `index` along a Hilbert curve through a square of 2^order tiles.
__device__ __forceinline__ TileIndex hilbert_curve(int index, int order) {
    int m = 0, n = 0;
    for (int side = 1; side < 1 << order; side *= 2) {
        const int right = 1 & index / 2, up = 1 & (index ^ right);
        if (up == 0) {
            if (right == 1) {
                m = side - 1 - m;
                n = side - 1 - n;
            }
            const int swap = m;
            m = n;
            n = swap;
        }
        m += side * right;
        n += side * up;
        index /= 4;
    }
    return {m, n, 0};
}

}  // namespace kw
