// The product of one K-tile on tensor cores, and the store of its sums from registers.
#pragma once

#include "kw/mma/shared_matrix.cuh"
#include "kw/pipeline/pipeline.cuh"
#include "kw/ptx/cp_async_bulk_tensor.cuh"
#include "kw/ptx/wgmma.cuh"

constexpr int kBlockK = 64;    // BF16 elements of a K-tile
constexpr int kRowBytes = 128;  // the same in bytes: the width of the swizzle

// Rows of a tile in shared memory, as TMA writes them and wgmma reads them.
using Matrix = kw::SharedMatrix<2, false>;

// acc (+)= A B^T over a K-tile, for kFragments x 64 rows of A and kBlockN rows of B; asynchronous.
template <int kFragments, int kBlockN>
__device__ __forceinline__ void multiply(float (&acc)[kFragments][kBlockN / 2], const unsigned char* smem_a,
                                         const unsigned char* smem_b, bool accumulate) {
    const unsigned long long a = Matrix::descriptor(smem_a), b = Matrix::descriptor(smem_b);
#pragma unroll
    for (int step = 0; step < kBlockK / 16; ++step)
#pragma unroll
        for (int f = 0; f < kFragments; ++f)
            kw::wgmma_mma_async<kw::bf16, kw::bf16, kBlockN>::issue(
                acc[f], kw::advance(a, Matrix::k_offset(step) + Matrix::row_offset(64 * f)),
                kw::advance(b, Matrix::k_offset(step)), accumulate || step > 0);
}

template <int kFragments, int kRegisters>
__device__ __forceinline__ void zero(float (&acc)[kFragments][kRegisters]) {
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
        for (int i = 0; i < kRegisters; ++i) acc[f][i] = 0.0f;
}

// Stores a fragment of 64 rows, whose first row and column are given: two columns at a time, 16 bytes of a row per
// quad of threads. N is even.
template <int kBlockN>
__device__ __forceinline__ void store_fragment(kw::bf16* out, const float (&d)[kBlockN / 2], int row, int column, int M,
                                               int N) {
    const int lane = threadIdx.x % 32, first_row = row + threadIdx.x % 128 / 32 * 16 + lane / 4;
    const int first_column = column + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kBlockN / 2; i += 2) {
        const int r = first_row + i % 4 / 2 * 8, c = first_column + i / 4 * 8;
        if (r < M && c < N)
            *reinterpret_cast<unsigned*>(out + static_cast<long long>(r) * N + c) = kw::pack<kw::bf16>(d[i], d[i + 1]);
    }
}

__device__ __forceinline__ int ceil_div(int a, int b) { return (a + b - 1) / b; }
