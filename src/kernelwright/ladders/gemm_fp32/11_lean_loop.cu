// In the loop (lean_loop.cuh) FMAs, the reads of their operands, and hardly anything else.
//
// rung: question   What does a loop issue that computes nothing?
// rung: hypothesis The loop is bound by issuing: of 2,221 instructions 2,048 are FMAs and 96 read operands. What is left
// rung: hypothesis are guards and addresses. Begin with the slab that reaches over the edge, repeat rows, and let every
// rung: hypothesis pointer advance by one addition: 2,190 instructions. 1.02 times faster. The sums must not be stored
// rung: hypothesis four at once as they are: that ties them to banks of registers that B's values have as well.
// rung: next       The last wave of tiles leaves processors idle: 512 tiles on 132 are four waves, of which 0.12 is idle.
//
// kw: entry  gemm_lean_loop
// kw: dims   a: float32[M, K]; b: float32[K, N]; c: float32[M, N]
// kw: out    out: float32[M, N]
// kw: grid   cdiv(N, 256) * cdiv(M, 128)
// kw: block  256
// kw: shared 2 * 16384 + 4 * 16 * 256 * 4
// kw: args   a, b, c, out, M, N, K, alpha, beta

#include "lean_loop.cuh"

template <bool wide>
__device__ __forceinline__ void compute(const Product& p) {
    const int tile = blockIdx.x;
    float sum[TM][TN] = {};
    multiply<wide>(p, tile, 0, p.slabs(), sum);
    const Place place(threadIdx.x);
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; j += 4)
            store<wide>(p, p.first_row(tile) + place.row(i), p.first_column(tile) + place.column(j),
                        make_float4(p.alpha * sum[i][j], p.alpha * sum[i][j + 1], p.alpha * sum[i][j + 2],
                                    p.alpha * sum[i][j + 3]));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm_lean_loop(const float* a, const float* b, const float* c, float* out, int M, int N, int K, float alpha,
               float beta) {
    const Product p = {a, b, c, out, M, N, K, alpha, beta};
    if (p.wide()) {
        compute<true>(p);
    } else {
        compute<false>(p);
    }
}
