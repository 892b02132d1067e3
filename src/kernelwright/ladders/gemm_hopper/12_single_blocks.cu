// The same without clusters: every block loads its own tiles.
//
// rung: question   Is multicast worth the coupling of two blocks?
// rung: hypothesis Multicast saves a quarter of the L2 traffic of 128 x 128 tiles, but a buffer is reused only when
// rung: hypothesis both blocks have read it, a cluster starts when both blocks are there, and 132 blocks have finer
// rung: hypothesis waves than 66 clusters. Six buffers hide 2.4 us. The same speed at 4096 and above, 1.05 times faster
// rung: hypothesis at 1024 (written after a first timing).
// rung: next       Measured: the same at 4096 and 8192, 1.06 times faster at 1024, 1.01 at 2048, and 16384 no longer
// rung: next       scatters. L2 hit rate 78 % at 8192. What is left is the last wave: 64 tiles for 132 SMs at 1024,
// rung: next       31.03 waves at 8192.
//
// kw: entry  gemm_single_blocks
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: map    a_map: a[128, 64]
// kw: map    b_map: b[128, 64]
// kw: map    out_map: out[64, 64]
// kw: grid   min(sms, cdiv(M, 128) * cdiv(N, 128))
// kw: block  384
// kw: shared 6 * 32768 + 4 * 8192 + 128
// kw: args   a_map, b_map, out_map, M, N, K

#include "ping_pong.cuh"

extern "C" __global__ void __launch_bounds__(kThreads, 1)
gemm_single_blocks(const __grid_constant__ kw::TensorMap a_map, const __grid_constant__ kw::TensorMap b_map,
                   const __grid_constant__ kw::TensorMap out_map, int M, int N, int K) {
    extern __shared__ __align__(1024) unsigned char stages[];
    PingPong<128, 128, 6, 1>(a_map, b_map, out_map, M, N, K, stages).run();
}
