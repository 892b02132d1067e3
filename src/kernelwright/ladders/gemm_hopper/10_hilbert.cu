// Tiles along a Hilbert curve, generalised to rectangles (cluster.cuh, order.cuh).
//
// rung: question   Is a space-filling curve better than bands?
// rung: hypothesis Any 66 consecutive tiles of the curve cover a compact region, and the next 66 adjoin it, so a wave
// rung: hypothesis finds panels of the wave before in the L2. Bands lose that at their ends only. 1.005 times faster at
// rung: hypothesis 8192 and more at 16384, where each operand is ten times the L2 of 50 MB.
// rung: next       Measured: L2 hit rate 76 %, 1.3 GB from DRAM: no better than bands, and 0.98 times as fast at 2048,
// rung: next       where the positions of the first tiles take a microsecond. Keep the bands; tensor cores still idle
// rung: next       during packing.
//
// kw: entry  gemm_hilbert
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
gemm_hilbert(const __grid_constant__ kw::TensorMap a_map, const __grid_constant__ kw::TensorMap b_map,
             const __grid_constant__ kw::TensorMap out_map, int M, int N, int K) {
    gemm<Hilbert>(a_map, b_map, out_map, M, N, K);
}
