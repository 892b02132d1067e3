// Ping-pong: each consumer has a tile of 128 x 128; one multiplies while the other stores (ping_pong.cuh).
//
// rung: question   Do tensor cores idle while both consumers store their halves of a tile?
// rung: hypothesis TMA hides the stores, but not packing, stmatrix and the barriers before them: about 1.5 us of the 65
// rung: hypothesis us of a tile at 8192, 2 % (4 % at 4096). A consumer that has its own tile does that while the other
// rung: hypothesis one multiplies. Tiles of 128 x 128 need more of the L2, 64 bytes per cycle without multicast and 48
// rung: hypothesis with. 1.02 times faster at 8192, 1.04 at 4096; and 1024 has 64 tiles in place of 32.
// rung: next       Measured: 1.01 times faster at 8192, 1.03 at 4096, 1.04 at 8192 x 28672 x 4096, 1.5 at 1024. At
// rung: next       16384 samples scatter by 25 %, with any other rung by 2 to 10 %. 64 clusters, whose waves are full,
// rung: next       are as fast as 66.
//
// kw: entry  gemm_ping_pong
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: map    a_map: a[128, 64]
// kw: map    b_map: b[64, 64]
// kw: map    out_map: out[64, 64]
// kw: grid   2 * min(sms // 2, cdiv(M, 256) * cdiv(N, 128))
// kw: block  384
// kw: cluster 2
// kw: shared 6 * 32768 + 4 * 8192 + 128
// kw: args   a_map, b_map, out_map, M, N, K

#include "ping_pong.cuh"

extern "C" __global__ void __launch_bounds__(kThreads, 1)
gemm_ping_pong(const __grid_constant__ kw::TensorMap a_map, const __grid_constant__ kw::TensorMap b_map,
               const __grid_constant__ kw::TensorMap out_map, int M, int N, int K) {
    extern __shared__ __align__(1024) unsigned char stages[];
    PingPong<128, 128, 6, 2>(a_map, b_map, out_map, M, N, K, stages).run();
}
