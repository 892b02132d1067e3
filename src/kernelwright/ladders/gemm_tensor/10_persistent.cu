// One block per SM computes several tiles: it copies the first k-tiles of the next while it finishes this one.
//
// rung: question   What do the empty ring at the start of a tile and the launch of blocks cost?
// rung: hypothesis A tile at 8192 takes 128 k-tiles. Filling the ring takes as long as about one, and nothing overlaps
// rung: hypothesis it. A ring that runs on into the next tile hides that: 1.01 times faster at 8192 and 1.02 at 4096,
// rung: hypothesis where half as many k-tiles share it; nothing where there is one tile per SM.
// rung: next       1.00 times at 8192 and 1.01 at 4096, less than predicted. A version that changed the tile inside of
// rung: next       the main loop was 3 % slower than one tile per block: at the branch ptxas can no longer move the
// rung: next       barrier up between products. Warps still wait at that barrier, 0.2 of 7 cycles per instruction, and
// rung: next       for the queue of the memory pipeline, 0.3.
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
// kw: shared 4 * (64 + 128) * 128
// kw: args   a, b, out, M, N, K

#include "tile_stream.cuh"

using Large = TileShape<128, 256, 64, 64, 4>;
using Small = TileShape<64, 128, 32, 64, 4>;

extern "C" __global__ void __launch_bounds__(Large::kThreads, 1)
tensor_persistent_large(const kw::bf16* a, const kw::bf16* b, kw::bf16* out, int M, int N, int K) {
    compute_tiles<Large>({a, b, out, M, N, K}, BlockSync<Large>());
}

extern "C" __global__ void __launch_bounds__(Small::kThreads, 2)
tensor_persistent_small(const kw::bf16* a, const kw::bf16* b, kw::bf16* out, int M, int N, int K) {
    compute_tile<Small>({a, b, out, M, N, K});
}
