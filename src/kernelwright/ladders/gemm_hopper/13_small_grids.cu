// Tiles of 64 x 128 where the larger ones leave SMs idle: the faster of two kernels by their number of waves.
//
// rung: question   What do small products cost?
// rung: hypothesis 1024 has 64 tiles of 128 x 128 for 132 SMs. Tiles of 64 x 128 keep 128 SMs busy and take 0.27 us per
// rung: hypothesis K-tile in place of 0.40: 1.4 times faster at 1024, the same elsewhere.
// rung: next       PENDING
//
// kw: entry  gemm_large_tiles
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: map    a_map: a[128, 64]
// kw: map    b_map: b[64, 64]
// kw: map    out_map: out[64, 64]
// kw: let    tiles = cdiv(M, 256) * cdiv(N, 128)
// kw: let    waves = max(1, cdiv(tiles, sms // 2))
// kw: let    small_tiles = cdiv(M, 64) * cdiv(N, 128)
// kw: let    small_waves = max(1, cdiv(small_tiles, sms))
// kw: let    use_small = min(1, max(0, 40 * waves - 27 * small_waves))
// kw: grid   2 * cdiv(tiles, waves) * (1 - use_small)
// kw: block  384
// kw: cluster 2
// kw: shared 6 * 32768 + 4 * 8192 + 128
// kw: args   a_map, b_map, out_map, M, N, K
//
// kw: entry  gemm_small_tiles
// kw: map    a_small_map: a[64, 64]
// kw: map    b_small_map: b[128, 64]
// kw: grid   cdiv(small_tiles, small_waves) * use_small
// kw: block  384
// kw: shared 8 * 24576 + 4 * 8192 + 128
// kw: args   a_small_map, b_small_map, out_map, M, N, K

#include "ping_pong.cuh"

extern "C" __global__ void __launch_bounds__(kThreads, 1)
gemm_large_tiles(const __grid_constant__ kw::TensorMap a_map, const __grid_constant__ kw::TensorMap b_map,
                 const __grid_constant__ kw::TensorMap out_map, int M, int N, int K) {
    extern __shared__ __align__(1024) unsigned char stages[];
    PingPong<128, 128, 6, 2, Grouped<8>>(a_map, b_map, out_map, M, N, K, stages).run();
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
gemm_small_tiles(const __grid_constant__ kw::TensorMap a_map, const __grid_constant__ kw::TensorMap b_map,
                 const __grid_constant__ kw::TensorMap out_map, int M, int N, int K) {
    extern __shared__ __align__(1024) unsigned char stages[];
    PingPong<64, 128, 8, 1, Grouped<8>>(a_map, b_map, out_map, M, N, K, stages).run();
}
