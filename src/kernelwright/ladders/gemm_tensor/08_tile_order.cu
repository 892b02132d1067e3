// Tiles in an order that reuses operands from the L2, and smaller ones where there are few.
//
// rung: question   What do the order and the size of tiles gain?
// rung: hypothesis In row order 132 tiles at a time cover 4 rows of 32 tiles at 8192 and read all of B, 136 MB; in
// rung: hypothesis bands of eight rows they read 8 rows of A and 17 columns of B, 88 MB, which the L2 of 50 MB delivers
// rung: hypothesis more of: 1.05 times faster at 8192. 64 x 128 makes 128 tiles instead of 32 at 1024: twice as fast
// rung: hypothesis there.
// rung: next       1.03 times faster at 8192, where bands of 512, 1,024 and 2,048 rows are the same, and 2.2 times at
// rung: next       1024. Each of 64 stores of a thread writes 16 bytes to each of eight rows: make them whole rows.
//
// kw: entry  tensor_tile_order_large
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: let    large = cdiv(M, 128) * cdiv(N, 256)
// kw: let    use_large = min(1, 4 * large // (3 * sms))
// kw: grid   large * use_large
// kw: block  256
// kw: shared 4 * (128 + 256) * 128
// kw: args   a, b, out, M, N, K
//
// kw: entry  tensor_tile_order_small
// kw: grid   cdiv(M, 64) * cdiv(N, 128) * (1 - use_large)
// kw: block  128
// kw: shared 4 * (64 + 128) * 128
// kw: args   a, b, out, M, N, K

#include "mainloop.cuh"
#include "tile.cuh"

using Large = TileShape<128, 256, 64, 64, 4>;
using Small = TileShape<64, 128, 32, 64, 4>;

template <class T>
__device__ __forceinline__ void compute(const GemmParams& p) {
    unsigned char* const ring = dynamic_shared();
    const TileOrigin tile = grouped_tile<T>(p, blockIdx.x);
    TileLoader<T> loader;
    loader.start(p, tile.row, tile.column);
    typename T::Accumulators acc = {};
    Mainloop<T> mainloop(loader, ring);
    mainloop.fill();
    mainloop.run(acc, p.k_tiles());
    mainloop.drain();
    store_pairs(acc, p.out, p.M, p.N, tile.row + T::warp_m(), tile.column + T::warp_n());
}

extern "C" __global__ void __launch_bounds__(Large::kThreads, 1)
tensor_tile_order_large(const kw::bf16* a, const kw::bf16* b, kw::bf16* out, int M, int N, int K) {
    compute<Large>({a, b, out, M, N, K});
}

extern "C" __global__ void __launch_bounds__(Small::kThreads, 2)
tensor_tile_order_small(const kw::bf16* a, const kw::bf16* b, kw::bf16* out, int M, int N, int K) {
    compute<Small>({a, b, out, M, N, K});
}
