// As many clusters as the waves need, not as many as fit: 64 of 66 at 8192, whose last wave is then full.
//
// rung: question   Are more SMs always faster?
// rung: hypothesis 2,048 tiles of clusters on 66 clusters take 32 waves, the last with two tiles. 64 clusters take 32 waves as
// rung: hypothesis well. At the limit of 700 W, 3 % fewer SMs run at a higher clock, and a wave is 8 x 8 tiles of the
// rung: hypothesis order. 1.01 times faster at 4096 and above.
// rung: next       PENDING
//
// kw: entry  gemm_even_waves
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: map    a_map: a[128, 64]
// kw: map    b_map: b[64, 64]
// kw: map    out_map: out[64, 64]
// kw: let    tiles = cdiv(M, 256) * cdiv(N, 128)
// kw: let    waves = max(1, cdiv(tiles, sms // 2))
// kw: grid   2 * cdiv(tiles, waves)
// kw: block  384
// kw: cluster 2
// kw: shared 6 * 32768 + 4 * 8192 + 128
// kw: args   a_map, b_map, out_map, M, N, K

#include "ping_pong.cuh"

extern "C" __global__ void __launch_bounds__(kThreads, 1)
gemm_even_waves(const __grid_constant__ kw::TensorMap a_map, const __grid_constant__ kw::TensorMap b_map,
               const __grid_constant__ kw::TensorMap out_map, int M, int N, int K) {
    extern __shared__ __align__(1024) unsigned char stages[];
    PingPong<128, 128, 6, 2, Grouped<8>>(a_map, b_map, out_map, M, N, K, stages).run();
}
