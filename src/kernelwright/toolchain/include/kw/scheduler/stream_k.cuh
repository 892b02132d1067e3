// Stream-K: the k-tiles of the last waves of tiles are distributed evenly over all blocks, which share tiles.
// Source: Osama et al. 2023, arXiv:2301.03598.
#pragma once

namespace kw {

// Tiles of the last wave, if it is not full, and of the wave before it.
__device__ __forceinline__ int last_waves(int tiles, int num_blocks) {
    const int last_wave = tiles % num_blocks;
    return last_wave ? last_wave + (tiles > num_blocks ? num_blocks : 0) : 0;
}

// The k-tiles of the first `split_tiles` tiles are distributed evenly over all blocks (up to one), as are other tiles.
struct StreamKSchedule {
    int tiles, k_tiles, num_blocks, split_tiles, k_tiles_per_block, remainder;
    __device__ StreamKSchedule(int tiles, int k_tiles, int num_blocks, int split_tiles)
        : tiles(tiles), k_tiles(k_tiles), num_blocks(num_blocks), split_tiles(split_tiles) {
        k_tiles_per_block = split_tiles * k_tiles / num_blocks, remainder = split_tiles * k_tiles % num_blocks;
    }
    __device__ int first_k_tile(int block) const { return block * k_tiles_per_block + min(block, remainder); }
    __device__ int block_of_k_tile(int k_tile) const {
        const int longer = remainder * (k_tiles_per_block + 1);
        return k_tile < longer ? k_tile / (k_tiles_per_block + 1) : remainder + (k_tile - longer) / k_tiles_per_block;
    }
};

// The index-th work tile of a block; `k_end` is 0 after the last one.
struct StreamKTile {
    int tile, k_begin, k_end;
    __device__ StreamKTile(int index, int block, const StreamKSchedule& schedule) {
        const int k_tiles = schedule.k_tiles;
        const int begin = schedule.first_k_tile(block), end = schedule.first_k_tile(block + 1);
        const int num_split = end > begin ? (end - 1) / k_tiles - begin / k_tiles + 1 : 0;
        if (index < num_split) {
            tile = begin / k_tiles + index;
            k_begin = index ? 0 : begin % k_tiles;
            k_end = min(k_tiles, end - tile * k_tiles);
        } else {
            tile = schedule.split_tiles + block + (index - num_split) * schedule.num_blocks;
            k_begin = 0;
            k_end = tile < schedule.tiles ? k_tiles : 0;
        }
    }
};

}  // namespace kw
