// One warp per 16 x 8 tile, with its fragments loaded from global memory where the layout of mma.m16n8k16 has them.
//
// rung: question   How fast are tensor cores that are fed from global memory?
// rung: hypothesis An mma of 4,096 FLOPs needs six loads, each 16 bytes of eight rows: eight sectors, half of them
// rung: hypothesis used. At eight cycles per load in the L1 that is 48 cycles for what tensor cores do in one: at most
// rung: hypothesis 20 TFLOP/s, about 3 % of cuBLAS.
// rung: next       19 TFLOP/s, 2.4 %. Share operands: a fragment is loaded by as many warps as there are tiles in its
// rung: next       row or column.
//
// kw: entry  tensor_naive
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: grid   cdiv(N, 16), cdiv(M, 32)
// kw: block  128
// kw: args   a, b, out, M, N, K

#include "kw/ptx/mma.cuh"
#include "tile.cuh"

extern "C" __global__ void __launch_bounds__(128)
tensor_naive(const kw::bf16* __restrict__ a, const kw::bf16* __restrict__ b, kw::bf16* __restrict__ out, int M, int N,
             int K) {
    const int warp = threadIdx.x / 32;
    const kw::FragmentLane lane(threadIdx.x % 32);
    const int first_row = blockIdx.y * 32 + warp / 2 * 16, first_column = blockIdx.x * 16 + warp % 2 * 8;
    const int row = first_row + lane.row, column = first_column + lane.row;
    float acc[1][1][4] = {};
    for (int k_start = 0; k_start < K; k_start += 16) {
        const int k = k_start + lane.pair;
        const unsigned frag_a[4] = {load_pair(a, row, M, k, K), load_pair(a, row + 8, M, k, K),
                                    load_pair(a, row, M, k + 8, K), load_pair(a, row + 8, M, k + 8, K)};
        const unsigned frag_b[2] = {load_pair(b, column, N, k, K), load_pair(b, column, N, k + 8, K)};
        kw::mma_m16n8k16_bf16(acc[0][0], frag_a, frag_b);
    }
    store_pairs(acc, out, M, N, first_row, first_column);
}
