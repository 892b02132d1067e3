// Tiles in an order that the L2 likes, and smaller ones where there are few.
//
// rung: question   What do the order and the size of tiles gain?
// rung: hypothesis In row order 132 tiles at a time cover 4 rows of 32 tiles at 8192 and read all of B, 136 MB; in bands of
// rung: hypothesis eight rows they read 8 rows of A and 17 columns of B, 88 MB, which the L2 of 50 MB delivers more of: 1.05
// rung: hypothesis times faster at 8192. 64 x 128 makes 128 tiles instead of 32 at 1024: twice as fast there.
// rung: next       Each of 32 stores of a thread writes 16 bytes to each of eight rows: make them whole rows.
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

#ifndef LARGE_SHAPE
#define LARGE_SHAPE 128, 256, 64, 64, 4
#define SMALL_SHAPE 64, 128, 32, 64, 4
#endif

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

extern "C" __global__ void __launch_bounds__(TileShape<LARGE_SHAPE>::kThreads, 1)
tensor_tile_order_large(const kw::bf16* a, const kw::bf16* b, kw::bf16* out, int M, int N, int K) {
    compute<TileShape<LARGE_SHAPE>>({a, b, out, M, N, K});
}

extern "C" __global__ void __launch_bounds__(TileShape<SMALL_SHAPE>::kThreads, 2)
tensor_tile_order_small(const kw::bf16* a, const kw::bf16* b, kw::bf16* out, int M, int N, int K) {
    compute<TileShape<SMALL_SHAPE>>({a, b, out, M, N, K});
}
