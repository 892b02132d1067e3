// Descriptors of matrices in shared memory for wgmma, in the layouts that TMA writes with a 128-byte swizzle.
// PTX ISA, "Matrix descriptor"; bits 0-13 address, 16-29 leading offset, 32-45 stride offset (each / 16), 62-63 swizzle.
#pragma once

#include "kw/ptx/shared.cuh"

namespace kw {

constexpr int kSwizzleBytes = 128;
constexpr int kSwizzleAtomBytes = 1024;  // 8 rows of 128 bytes

// A matrix of rows (M or N) and 128 bytes along K.
//   K-major: each row is 128 contiguous bytes.
//   Transposed: panels of 128 bytes along the rows; in a panel, each of the kDepth steps of K is 128 contiguous bytes.
template <int kElementBytes, bool kTransposed>
struct SharedMatrix {
    static constexpr int kDepth = kSwizzleBytes / kElementBytes;
    static constexpr int kPanelBytes = kDepth * kSwizzleBytes;  // of kSwizzleBytes / kElementBytes rows

    static __device__ __forceinline__ unsigned long long descriptor(const void* smem) {
        const unsigned long long leading = kTransposed ? kPanelBytes : 16, stride = kSwizzleAtomBytes;
        return (smem_u32(smem) & 0x3FFFF) >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | 1ull << 62;
    }

    // Byte offset of a row that is a multiple of 64, and of a step of 32 bytes along K.
    static __device__ __forceinline__ constexpr int row_offset(int row) { return row * kSwizzleBytes; }
    static __device__ __forceinline__ constexpr int k_offset(int step) {
        return step * (kTransposed ? 32 / kElementBytes * kSwizzleBytes : 32);
    }
};

// A descriptor whose address is further by a multiple of 16 bytes.
__device__ __forceinline__ unsigned long long advance(unsigned long long descriptor, int bytes) {
    return descriptor + (bytes >> 4);
}

}  // namespace kw
