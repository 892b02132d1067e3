// Tiles in bands of eight rows, walked column by column (cluster.cuh, order.cuh).
//
// rung: question   Does the order of tiles matter to the L2?
// rung: hypothesis Row by row, the 66 clusters that run together at 8192 work on two rows of tiles and all 32 columns:
// rung: hypothesis 34 panels of A and B. In bands of eight rows they work on 8 x 8 tiles: 16 panels, half of the bytes
// rung: hypothesis from DRAM, and less power. L2 hit rate from 70 to 85 %. 1.03 times faster.
// rung: next       Measured: L2 hit rate 78 % and 1.2 GB from DRAM in place of 64 % and 2.4 GB, and no difference in
// rung: next       speed beyond the spread of 3 %: loads are hidden, and DRAM takes little of the 700 W. Bands of 4 and
// rung: next       16 rows are the same.
//
// kw: entry  gemm_grouped
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: map    a_map: a[128, 64]
// kw: map    b_map: b[128, 64]
// kw: map    out_map: out[64, 64]
// kw: grid   2 * min(sms // 2, cdiv(M, 256) * cdiv(N, 256))
// kw: block  384
// kw: cluster 2
// kw: shared 4 * 49152 + 4 * 8192 + 128 + 1536
// kw: args   a_map, b_map, out_map, M, N, K

#include "cluster.cuh"

extern "C" __global__ void __launch_bounds__(128 * (kNumConsumers + 1), 1)
gemm_grouped(const __grid_constant__ kw::TensorMap a_map, const __grid_constant__ kw::TensorMap b_map,
             const __grid_constant__ kw::TensorMap out_map, int M, int N, int K) {
    gemm<Grouped<8>>(a_map, b_map, out_map, M, N, K);
}
