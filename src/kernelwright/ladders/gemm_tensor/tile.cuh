// Guarded accesses to matrices of BF16, and the epilogue of the first rungs.
#pragma once

#include "kw/mma/fragments.cuh"
#include "kw/ptx/cp_async.cuh"
#include "kw/ptx/cvt.cuh"

// Elements k and k + 1 of a row, zeros outside of the matrix; k is even.
__device__ __forceinline__ unsigned load_pair(const kw::bf16* matrix, int row, int rows, int k, int K) {
    return row < rows && k < K ? *reinterpret_cast<const unsigned*>(matrix + (long long)row * K + k) : 0;
}

// Eight elements of a row, zeros outside of the matrix; k is a multiple of eight.
__device__ __forceinline__ uint4 load_chunk(const kw::bf16* matrix, int row, int rows, int k, int K) {
    return row < rows && k < K ? *reinterpret_cast<const uint4*>(matrix + (long long)row * K + k)
                               : make_uint4(0, 0, 0, 0);
}

// Copies eight elements of a row to shared memory asynchronously, zeros from outside of the matrix.
__device__ __forceinline__ void copy_chunk(void* smem, const kw::bf16* matrix, int row, int rows, int k, int K) {
    kw::cp_async_cg_16(smem, matrix + (long long)row * K + k, row < rows && k < K);
}

// Rounds a warp's accumulators, tiles of 16 x 8, and stores them in pairs: 16 bytes of each of eight rows at a time.
template <int kTilesM, int kTilesN>
__device__ __forceinline__ void store_pairs(const float (&acc)[kTilesM][kTilesN][4], kw::bf16* out, int M, int N,
                                            int first_row, int first_column) {
    const kw::FragmentLane lane(threadIdx.x % 32);
#pragma unroll
    for (int m = 0; m < kTilesM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + m * 16 + half * 8 + lane.row;
            if (row >= M) continue;
#pragma unroll
            for (int n = 0; n < kTilesN; ++n) {
                const int column = first_column + n * 8 + lane.pair;
                if (column < N)
                    *reinterpret_cast<unsigned*>(out + (long long)row * N + column) =
                        kw::pack<kw::bf16>(acc[m][n][2 * half], acc[m][n][2 * half + 1]);
            }
        }
}
