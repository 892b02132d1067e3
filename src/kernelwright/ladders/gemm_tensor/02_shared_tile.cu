// Tiles of A and B in shared memory; a warp computes 64 x 32 and reuses each fragment four times.
//
// rung: question   What does reuse within a block and within a warp gain?
// rung: hypothesis A block of 128 x 128 reads 32 times fewer sectors than before, which the L1 delivers in time. Now a
// rung: hypothesis warp needs 24 loads of fragments for 16 mma, and rows of 128 bytes have the same banks: the eight
// rung: hypothesis rows of a load conflict, eight wavefronts each. 192 cycles for 65,536 FLOPs: at most 340 per cycle,
// rung: hypothesis a twelfth of the dense peak, with copies and waits for them in between. 2 to 3 times faster.
// rung: next       3.4 times faster, 67 TFLOP/s. Shared memory is busy for 89 % of the cycles and tensor cores for 11
// rung: next       %: 84 % of the wavefronts are conflicts. Do fewer load instructions help?
//
// kw: entry  tensor_shared
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: grid   cdiv(N, 128), cdiv(M, 128)
// kw: block  256
// kw: args   a, b, out, M, N, K

#include "kw/ptx/mma.cuh"
#include "tile.cuh"

#define BM 128
#define BN 128
#define BK 64
#define WM 64  // warp tile
#define WN 32

extern "C" __global__ void __launch_bounds__(256, 2)
tensor_shared(const kw::bf16* __restrict__ a, const kw::bf16* __restrict__ b, kw::bf16* __restrict__ out, int M, int N,
              int K) {
    __shared__ __align__(128) kw::bf16 tile_a[BM][BK], tile_b[BN][BK];
    const int thread = threadIdx.x, warp = thread / 32, warp_m = warp / 4 * WM, warp_n = warp % 4 * WN;
    const int first_row = blockIdx.y * BM, first_column = blockIdx.x * BN;
    const int copy_row = thread / 8, copy_k = thread % 8 * 8;
    const kw::FragmentLane lane(thread % 32);
    float acc[WM / 16][WN / 8][4] = {};
    for (int k_start = 0; k_start < K; k_start += BK) {
        uint4 reg_a[4], reg_b[4];  // all loads are in flight before the first is used
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            reg_a[i] = load_chunk(a, first_row + copy_row + i * 32, M, k_start + copy_k, K);
            reg_b[i] = load_chunk(b, first_column + copy_row + i * 32, N, k_start + copy_k, K);
        }
        __syncthreads();  // all warps have computed on the tile before
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            *reinterpret_cast<uint4*>(&tile_a[copy_row + i * 32][copy_k]) = reg_a[i];
            *reinterpret_cast<uint4*>(&tile_b[copy_row + i * 32][copy_k]) = reg_b[i];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; k += 16) {
            unsigned frag_a[WM / 16][4], frag_b[WN / 8][2];
#pragma unroll
            for (int m = 0; m < WM / 16; ++m)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    frag_a[m][i] = *reinterpret_cast<const unsigned*>(
                        &tile_a[warp_m + m * 16 + i % 2 * 8 + lane.row][k + i / 2 * 8 + lane.pair]);
#pragma unroll
            for (int n = 0; n < WN / 8; ++n)
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    frag_b[n][i] = *reinterpret_cast<const unsigned*>(
                        &tile_b[warp_n + n * 8 + lane.row][k + i * 8 + lane.pair]);
#pragma unroll
            for (int m = 0; m < WM / 16; ++m)
#pragma unroll
                for (int n = 0; n < WN / 8; ++n) kw::mma_m16n8k16_bf16(acc[m][n], frag_a[m], frag_b[n]);
        }
    }
    store_pairs(acc, out, M, N, first_row + warp_m, first_column + warp_n);
}
