// Three tiles, 128 x 192, 128 x 128 and 64 x 128: the header launches the one whose waves take the least time.
//
// rung: question   Which tile does a product need?
// rung: hypothesis A wave of one K-tile takes 0.59 us with 128 x 192, 0.39 us with 128 x 128 and 0.22 us with 64 x 128
// rung: hypothesis (rungs above, at 8192, 8192 and 2048): per output, large tiles are the fastest, and the last wave
// rung: hypothesis decides. 1024 has 128 tiles of 64 x 128 for 132 SMs: 1.4 times faster. 8192 has 21 waves of 128 x
// rung: hypothesis 192 in place of 32 of 128 x 128: 1.01 times faster. The other sizes keep their tile. (Written
// rung: hypothesis after a first timing of the tiles.)
// rung: next       Measured: 687 TFLOP/s at 8192, 1.05 of cuBLAS; 1.03 at 4096 and 16384, 1.04 at 8192 x 28672 x 4096,
// rung: next       1.00 at 2048, 0.94 at 1024. There 0.4 us of 6.2 are the start of the kernel: programmatic dependent
// rung: next       launch hides them in kernels.gemm (1.01). 256 x 192 tiles without ping-pong: 0.99 at 8192. Above
// rung: next       4096 only less power is speed.
//
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: map    a_map: a[128, 64]
// kw: map    a_small_map: a[64, 64]
// kw: map    b_map: b[128, 64]
// kw: map    b_wide_map: b[192, 64]
// kw: map    out_map: out[64, 64]
// kw: let    wide_tiles = cdiv(M, 128) * cdiv(N, 192)
// kw: let    tiles = cdiv(M, 128) * cdiv(N, 128)
// kw: let    small_tiles = cdiv(M, 64) * cdiv(N, 128)
// kw: let    wide_time = 59 * cdiv(wide_tiles, sms)
// kw: let    time = 39 * cdiv(tiles, sms)
// kw: let    small_time = 22 * cdiv(small_tiles, sms)
// kw: let    least = min(wide_time, time, small_time)
// kw: let    is_wide = max(0, 1 + least - wide_time)
// kw: let    is_small = max(0, 1 + least - small_time) * (1 - is_wide)
//
// kw: entry  gemm_wide_tiles
// kw: grid   min(sms, wide_tiles) * is_wide
// kw: block  384
// kw: shared 4 * 40960 + 4 * 8192 + 128
// kw: args   a_map, b_wide_map, out_map, M, N, K
//
// kw: entry  gemm_tiles
// kw: grid   min(sms, tiles) * (1 - is_wide - is_small)
// kw: block  384
// kw: shared 6 * 32768 + 4 * 8192 + 128
// kw: args   a_map, b_map, out_map, M, N, K
//
// kw: entry  gemm_small_tiles
// kw: grid   min(sms, small_tiles) * is_small
// kw: block  384
// kw: shared 8 * 24576 + 4 * 8192 + 128
// kw: args   a_small_map, b_map, out_map, M, N, K

#include "ping_pong.cuh"

extern "C" __global__ void __launch_bounds__(kThreads, 1)
gemm_wide_tiles(const __grid_constant__ kw::TensorMap a_map, const __grid_constant__ kw::TensorMap b_map,
                const __grid_constant__ kw::TensorMap out_map, int M, int N, int K) {
    extern __shared__ __align__(1024) unsigned char stages[];
    PingPong<128, 192, 4, 1>(a_map, b_map, out_map, M, N, K, stages).run();
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
gemm_tiles(const __grid_constant__ kw::TensorMap a_map, const __grid_constant__ kw::TensorMap b_map,
           const __grid_constant__ kw::TensorMap out_map, int M, int N, int K) {
    extern __shared__ __align__(1024) unsigned char stages[];
    PingPong<128, 128, 6, 1>(a_map, b_map, out_map, M, N, K, stages).run();
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
gemm_small_tiles(const __grid_constant__ kw::TensorMap a_map, const __grid_constant__ kw::TensorMap b_map,
                 const __grid_constant__ kw::TensorMap out_map, int M, int N, int K) {
    extern __shared__ __align__(1024) unsigned char stages[];
    PingPong<64, 128, 8, 1>(a_map, b_map, out_map, M, N, K, stages).run();
}
