// Accumulators go through shared memory, so that every store writes 16 bytes and eight lanes a row of 128.
//
// rung: question   What do the narrow stores of the epilogue cost?
// rung: hypothesis A store of pairs writes half of eight sectors, so the L2 merges two partial writes of each: 64
// rung: hypothesis stores per thread become 16. The epilogue is about 2 % of the time at 8192 and 10 % at 1024, and
// rung: hypothesis half of it is stores: 1.01 times faster at 8192, 1.05 at 1024.
// rung: next       1.03 times faster at 8192, 1.06 at 4096, 1.1 at 1024 and 2048: more than predicted. While a block
// rung: next       stores, its tensor cores idle, and so they do while the next block fills its ring.
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

using Large = TileShape<128, 256, 64, 64, 4>;
using Small = TileShape<64, 128, 32, 64, 4>;

extern "C" __global__ void __launch_bounds__(Large::kThreads, 1)
tensor_wide_stores_large(const kw::bf16* a, const kw::bf16* b, kw::bf16* out, int M, int N, int K) {
    compute_tile<Large>({a, b, out, M, N, K});
}

extern "C" __global__ void __launch_bounds__(Small::kThreads, 2)
tensor_wide_stores_small(const kw::bf16* a, const kw::bf16* b, kw::bf16* out, int M, int N, int K) {
    compute_tile<Small>({a, b, out, M, N, K});
}
