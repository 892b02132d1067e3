// Accumulators go through shared memory, so that every store writes 16 bytes and eight lanes a row of 128.
//
// rung: question   What do the narrow stores of the epilogue cost?
// rung: hypothesis A store of pairs writes half of eight sectors, so the L2 merges two partial writes of each: 64 stores per
// rung: hypothesis thread become 16. The epilogue is about 2 % of the time at 8192 and 10 % at 1024, and half of it is
// rung: hypothesis stores: 1.01 times faster at 8192, 1.05 at 1024.
// rung: next       While a block stores, its tensor cores idle, and so they do while the next block fills its ring.
//
// kw: entry  tensor_wide_stores_large
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: let    large = cdiv(M, 128) * cdiv(N, 256)
// kw: let    use_large = min(1, 4 * large // (3 * sms))
// kw: grid   large * use_large
// kw: block  256
// kw: shared 4 * (128 + 256) * 128
// kw: args   a, b, out, M, N, K
//
// kw: entry  tensor_wide_stores_small
// kw: grid   cdiv(M, 64) * cdiv(N, 128) * (1 - use_large)
// kw: block  128
// kw: shared 4 * (64 + 128) * 128
// kw: args   a, b, out, M, N, K

#include "epilogue.cuh"

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
    __syncthreads();  // the ring is free
    store_chunks<T>(acc, ring + threadIdx.x / 32 * 2048, p, tile.row + T::warp_m(), tile.column + T::warp_n());
}

extern "C" __global__ void __launch_bounds__(TileShape<LARGE_SHAPE>::kThreads, 1)
tensor_wide_stores_large(const kw::bf16* a, const kw::bf16* b, kw::bf16* out, int M, int N, int K) {
    compute<TileShape<LARGE_SHAPE>>({a, b, out, M, N, K});
}

extern "C" __global__ void __launch_bounds__(TileShape<SMALL_SHAPE>::kThreads, 2)
tensor_wide_stores_small(const kw::bf16* a, const kw::bf16* b, kw::bf16* out, int M, int N, int K) {
    compute<TileShape<SMALL_SHAPE>>({a, b, out, M, N, K});
}
