// Main loop at the issue limit (mainloop.cuh): FMAs, operand loads, and little else.
//
// rung: question   What do instructions in the loop cost that do not compute?
// rung: hypothesis The loop is issue-bound: of 2,221 instructions 2,048 are FMAs and 96 load operands; the rest are
// rung: hypothesis bounds checks and address computations. Start with the partial k-tile, clamp rows, and advance every
// rung: hypothesis pointer by one addition: 2,190 instructions, 1.02 times faster. Accumulators must not be stored
// rung: hypothesis directly as float4: that assigns them to register banks which the values of B use as well.
// rung: next       The last wave leaves SMs idle: 512 tiles on 132 SMs take four waves, with 0.12 of a wave idle.
//
// kw: entry  gemm_issue_bound
// kw: dims   a: float32[M, K]; b: float32[K, N]; c: float32[M, N]
// kw: out    out: float32[M, N]
// kw: grid   cdiv(N, 256) * cdiv(M, 128)
// kw: block  256
// kw: shared 2 * 16384 + 4 * 16 * 256 * 4
// kw: args   a, b, c, out, M, N, K, alpha, beta

#include "mainloop.cuh"

template <bool aligned>
__device__ __forceinline__ void compute(const GemmParams& p) {
    const int tile = blockIdx.x;
    float acc[TM][TN] = {};
    mainloop<aligned>(p, tile, 0, p.k_tiles(), acc);
    const ThreadTile thread_tile(threadIdx.x);
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; j += 4)
            store_with_beta<aligned>(p, p.first_row(tile) + thread_tile.row(i),
                                     p.first_column(tile) + thread_tile.column(j),
                                     make_float4(p.alpha * acc[i][j], p.alpha * acc[i][j + 1],
                                                 p.alpha * acc[i][j + 2], p.alpha * acc[i][j + 3]));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm_issue_bound(const float* a, const float* b, const float* c, float* out, int M, int N, int K, float alpha,
               float beta) {
    const GemmParams p = {a, b, c, out, M, N, K, alpha, beta};
    if (p.is_aligned()) {
        compute<true>(p);
    } else {
        compute<false>(p);
    }
}
