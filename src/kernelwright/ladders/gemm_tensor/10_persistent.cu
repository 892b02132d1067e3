// One block per SM computes several tiles: it copies the first k-tiles of the next while it finishes and stores this one.
//
// rung: question   What do the empty ring at the start of a tile and the launch of blocks cost?
// rung: hypothesis A tile at 8192 takes 128 k-tiles. Filling the ring takes as long as about one, and nothing overlaps it.
// rung: hypothesis A ring that runs on into the next tile hides that: 1.01 times faster at 8192 and 1.02 at 4096, where half
// rung: hypothesis as many k-tiles share it; nothing where there is one tile per SM.
// rung: next       mma.sync itself.
//
// kw: entry  tensor_persistent_large
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: let    large = cdiv(M, 128) * cdiv(N, 256)
// kw: let    use_large = min(1, 4 * large // (3 * sms))
// kw: grid   min(sms, large * use_large)
// kw: block  256
// kw: shared 4 * (128 + 256) * 128 + 8 * 2048
// kw: args   a, b, out, M, N, K
//
// kw: entry  tensor_persistent_small
// kw: grid   cdiv(M, 64) * cdiv(N, 128) * (1 - use_large)
// kw: block  128
// kw: shared 4 * (64 + 128) * 128 + 4 * 2048
// kw: args   a, b, out, M, N, K

#include "epilogue.cuh"
#include "tile_stream.cuh"

#ifndef LARGE_SHAPE
#define LARGE_SHAPE 128, 256, 64, 64, 4
#define SMALL_SHAPE 64, 128, 32, 64, 4
#endif

template <class T>
__device__ __forceinline__ void compute(const GemmParams& p) {
    unsigned char* const ring = dynamic_shared();  // and 2,048 bytes per warp
    TileStream<T> stream(p);
    Mainloop<T, TileStream<T>> mainloop(stream, ring);
    mainloop.fill();
    for (int tile = blockIdx.x; tile < p.template tiles<T>(); tile += gridDim.x) {
        typename T::Accumulators acc = {};
#pragma unroll 1
        for (int left = p.k_tiles(); left > 0;) {  // no branch in the main loop: it ends where copies change the tile
            const int k_tiles = min(left, stream.k_tiles);
            mainloop.run(acc, k_tiles);
            stream.count(k_tiles);
            left -= k_tiles;
        }
        const TileOrigin origin = grouped_tile<T>(p, tile);
        store_chunks<T>(acc, ring + T::kRingBytes + threadIdx.x / 32 * 2048, p, origin.row + T::warp_m(),
                        origin.column + T::warp_n());
    }
    mainloop.drain();
}

extern "C" __global__ void __launch_bounds__(TileShape<LARGE_SHAPE>::kThreads, 1)
tensor_persistent_large(const kw::bf16* a, const kw::bf16* b, kw::bf16* out, int M, int N, int K) {
    compute<TileShape<LARGE_SHAPE>>({a, b, out, M, N, K});
}

extern "C" __global__ void __launch_bounds__(TileShape<SMALL_SHAPE>::kThreads, 2)
tensor_persistent_small(const kw::bf16* a, const kw::bf16* b, kw::bf16* out, int M, int N, int K) {
    compute<TileShape<SMALL_SHAPE>>({a, b, out, M, N, K});
}
