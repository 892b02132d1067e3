// Fragments of mma.m16n8k16 with 16-bit operands: which elements a lane holds, which rows it passes to ldmatrix_x4, and
// where a swizzled tile has them. PTX ISA, "Matrix fragments for mma.m16n8k16"; `kw layout mma.m16n8k16.f16` draws them.
#pragma once

namespace kw {

constexpr int kTileRowBytes = 128;  // 64 elements along K: all 32 banks, once

// Register i of A holds row + 8 (i % 2) at k = pair + 8 (i / 2) and the next k; register i of B holds column `row` at
// k = pair + 8 i and the next k; element i of D is row + 8 (i / 2), column pair + i % 2.
struct FragmentLane {
    int row, pair;
    __device__ explicit FragmentLane(int lane) : row(lane / 4), pair(lane % 4 * 2) {}
};

// Row of a tile of rows along K, and 16-byte chunk of that row, whose address a lane passes to ldmatrix_x4.
struct LdmatrixLane {
    int row, chunk;
};
// For the four registers of A, 16 rows.
__device__ __forceinline__ LdmatrixLane ldmatrix_lane_a(int lane) { return {lane % 16, lane / 16}; }
// For two registers of each of two B, 16 columns.
__device__ __forceinline__ LdmatrixLane ldmatrix_lane_b(int lane) { return {lane % 8 + lane / 16 * 8, lane / 8 % 2}; }

// Byte offset of a 16-byte chunk in a tile with rows of 128 bytes. The same chunk of eight consecutive rows is in eight
// different groups of four banks.
__device__ __forceinline__ int swizzle_128b(int row, int chunk) {
    return row * kTileRowBytes + ((chunk ^ (row % 8)) << 4);
}

}  // namespace kw
