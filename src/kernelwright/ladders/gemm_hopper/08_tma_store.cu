// Sums go to shared memory with stmatrix and from there through TMA while the next tile is multiplied (store.cuh).
//
// rung: question   What do the stores from registers cost?
// rung: hypothesis A warp stores 8 rows of 16 bytes: half of each 32-byte sector, 64 instructions per thread, and the
// rung: hypothesis consumers wait for them. stmatrix writes without bank conflicts, and TMA stores whole lines of 128
// rung: hypothesis bytes without registers or a consumer's time. 1.03 times faster at 8192, 1.05 at 4096.
// rung: next       Measured: 1.04 times faster at 8192, 1.09 at 4096, 1.21 at 2048: faster than cuBLAS from 4096 on.
// rung: next       ncu at 8192: L2 hit rate 64 %, 2.4 GB from DRAM. Next: an order of tiles that reads less.
//
// kw: entry  gemm_tma_store
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
gemm_tma_store(const __grid_constant__ kw::TensorMap a_map, const __grid_constant__ kw::TensorMap b_map,
               const __grid_constant__ kw::TensorMap out_map, int M, int N, int K) {
    gemm<RowMajor>(a_map, b_map, out_map, M, N, K);
}
