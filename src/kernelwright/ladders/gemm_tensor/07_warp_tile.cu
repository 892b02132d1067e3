// Warp tiles of 64 x 64 in a block of 128 x 256 (mainloop.cuh), with fragments double-buffered in registers.
//
// rung: question   Is shared memory the limit, and does a larger warp tile relieve it?
// rung: hypothesis A warp tile of 64 x 64 reads 32 wavefronts for 32 mma where 64 x 32 needs 24 for 16: 4,096 FLOPs per
// rung: hypothesis wavefront instead of 2,730. Fragments of the next step are loaded while this one is multiplied,
// rung: hypothesis since only eight warps fit and cannot hide the latency of LDSM otherwise. 1.3 times faster where
// rung: hypothesis there are enough tiles, slower at 1024, which has 32 for 132 SMs.
// rung: next       1.2 times faster, at 1024 0.7 times. Tensor cores are busy for 78 %. ptxas puts three dummy LDS
// rung: next       before each group of LDGSTS, so copies in twelve groups per k-tile instead of six are 4 % slower.
// rung: next       Choose the tile by the size of the problem, and the order of the tiles by the L2.
//
// kw: entry  tensor_warp_tile
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: grid   cdiv(N, 256), cdiv(M, 128)
// kw: block  256
// kw: shared 4 * (128 + 256) * 128
// kw: args   a, b, out, M, N, K

#include "mainloop.cuh"
#include "tile.cuh"

using Shape = TileShape<128, 256, 64, 64, 4>;

extern "C" __global__ void __launch_bounds__(256, 1)
tensor_warp_tile(const kw::bf16* a, const kw::bf16* b, kw::bf16* out, int M, int N, int K) {
    unsigned char* const ring = dynamic_shared();
    const GemmParams p = {a, b, out, M, N, K};
    const int first_row = blockIdx.y * Shape::kBlockM, first_column = blockIdx.x * Shape::kBlockN;
    TileLoader<Shape> loader;
    loader.start(p, first_row, first_column);
    Shape::Accumulators acc = {};
    Mainloop<Shape> mainloop(loader, ring);
    mainloop.fill();
    mainloop.run(acc, p.k_tiles());
    mainloop.drain();
    store_pairs(acc, out, M, N, first_row + Shape::warp_m(), first_column + Shape::warp_n());
}
