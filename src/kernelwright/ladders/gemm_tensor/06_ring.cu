// A ring of three stages: while a block computes on one tile, the next two are on their way.
//
// rung: question   Can a block compute while its copies are in flight?
// rung: hypothesis A tile takes 24 x 4 wavefronts for each of eight warps, about 800 cycles, and the latency of a copy
// rung: hypothesis is about as long: with two tiles in flight neither waits. One barrier per k-tile instead of two: 1.5
// rung: hypothesis times faster.
// rung: next       1.05 to 1.09 times faster, less than predicted: two blocks per SM hid most of the copies from each
// rung: next       other already. Tensor cores are busy for 63 %, as is shared memory: 24 wavefronts for 16 mma. Use
// rung: next       larger warp tiles.
//
// kw: entry  tensor_ring
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: grid   cdiv(N, 128), cdiv(M, 128)
// kw: block  256
// kw: shared 3 * 32768
// kw: args   a, b, out, M, N, K

#include "kw/ptx/cp_async.cuh"
#include "kw/ptx/ldmatrix.cuh"
#include "kw/ptx/mma.cuh"
#include "tile.cuh"

#define BM 128
#define BN 128
#define BK 64
#define WM 64
#define WN 32
#define NUM_STAGES 3
#define TILE_BYTES (BM * kw::kTileRowBytes)  // of A, and of B

extern "C" __global__ void __launch_bounds__(256, 2)
tensor_ring(const kw::bf16* __restrict__ a, const kw::bf16* __restrict__ b, kw::bf16* __restrict__ out, int M, int N,
            int K) {
    extern __shared__ __align__(1024) unsigned char stages[];  // [NUM_STAGES] of A and B
    const int thread = threadIdx.x, warp = thread / 32, warp_m = warp / 4 * WM, warp_n = warp % 4 * WN;
    const int first_row = blockIdx.y * BM, first_column = blockIdx.x * BN;
    const int copy_row = thread / 8, copy_k = thread % 8 * 8;
    const int copy_to = kw::swizzle_128b(copy_row, thread % 8);
    const kw::LdmatrixLane lane_a = kw::ldmatrix_lane_a(thread % 32), lane_b = kw::ldmatrix_lane_b(thread % 32);
    float acc[WM / 16][WN / 8][4] = {};
    auto copy_tiles = [&](int stage, int k) {
        unsigned char* const to = stages + stage * 2 * TILE_BYTES + copy_to;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = copy_row + i * 32, offset = i * 32 * kw::kTileRowBytes;
            copy_chunk(to + offset, a, first_row + row, M, k, K);
            copy_chunk(to + TILE_BYTES + offset, b, first_column + row, N, k, K);
        }
        kw::cp_async_commit_group();
    };
#pragma unroll
    for (int stage = 0; stage < NUM_STAGES - 1; ++stage) copy_tiles(stage, stage * BK + copy_k);
    int stage = 0, free_stage = NUM_STAGES - 1;
    for (int k_start = 0; k_start < K; k_start += BK) {
        kw::cp_async_wait_group<NUM_STAGES - 2>();
        __syncthreads();  // this stage is complete, and all warps have computed on the free one
        copy_tiles(free_stage, k_start + (NUM_STAGES - 1) * BK + copy_k);
        const unsigned char *tile_a = stages + stage * 2 * TILE_BYTES, *tile_b = tile_a + TILE_BYTES;
#pragma unroll
        for (int k = 0; k < BK; k += 16) {
            unsigned frag_a[WM / 16][4], frag_b[WN / 16][4];  // of B: two fragments of two registers
#pragma unroll
            for (int m = 0; m < WM / 16; ++m)
                kw::ldmatrix_x4(frag_a[m],
                                tile_a + kw::swizzle_128b(warp_m + m * 16 + lane_a.row, k / 8 + lane_a.chunk));
#pragma unroll
            for (int n = 0; n < WN / 16; ++n)
                kw::ldmatrix_x4(frag_b[n],
                                tile_b + kw::swizzle_128b(warp_n + n * 16 + lane_b.row, k / 8 + lane_b.chunk));
#pragma unroll
            for (int m = 0; m < WM / 16; ++m)
#pragma unroll
                for (int n = 0; n < WN / 8; ++n) {
                    const unsigned (&pair)[4] = frag_b[n / 2];
                    const unsigned own[2] = {pair[n % 2 * 2], pair[n % 2 * 2 + 1]};
                    kw::mma_m16n8k16_bf16(acc[m][n], frag_a[m], own);
                }
        }
        free_stage = stage;
        stage = stage + 1 == NUM_STAGES ? 0 : stage + 1;
    }
    kw::cp_async_wait_group<0>();
    store_pairs(acc, out, M, N, first_row + warp_m, first_column + warp_n);
}
