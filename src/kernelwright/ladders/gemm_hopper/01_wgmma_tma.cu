// Tensor cores through wgmma, tiles through TMA: a 64 x 64 tile per warpgroup, one buffer.
//
// rung: question   What do wgmma and TMA reach without any overlap?
// rung: hypothesis The four wgmmas of a K-tile take 128 cycles; its 16 KiB take 256 at the 64 bytes per cycle that an
// rung: hypothesis SM gets from the L2, after a latency of about a thousand. Only the other blocks on the SM hide that.
// rung: hypothesis At most half of the peak of 989 TFLOP/s, and rather a third: 300 TFLOP/s.
// rung: next       Measured: 285 TFLOP/s at 8192 (300 predicted), 0.44 of cuBLAS. Eight blocks fit an SM (58
// rung: next       registers); all wait for the L2. Fewer bytes per FLOP: a larger tile.
//
// kw: entry  gemm_wgmma_tma
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: map    a_map: a[64, 64]
// kw: map    b_map: b[64, 64]
// kw: grid   cdiv(N, 64), cdiv(M, 64)
// kw: block  128
// kw: args   a_map, b_map, out, M, N, K

#include "tile.cuh"

constexpr int kBlockM = 64, kBlockN = 64;

extern "C" __global__ void __launch_bounds__(128)
gemm_wgmma_tma(const __grid_constant__ kw::TensorMap a_map, const __grid_constant__ kw::TensorMap b_map, kw::bf16* out,
               int M, int N, int K) {
    __shared__ __align__(1024) unsigned char tile_a[kBlockM * kRowBytes], tile_b[kBlockN * kRowBytes];
    __shared__ unsigned long long full;
    const int row = blockIdx.y * kBlockM, column = blockIdx.x * kBlockN;
    if (threadIdx.x == 0) {
        kw::mbarrier_init(&full);
        kw::fence_mbarrier_init();
    }
    __syncthreads();
    float acc[1][kBlockN / 2] = {};
    unsigned parity = 0;
    for (int k = 0; k < K; k += kBlockK, parity ^= 1) {
        if (threadIdx.x == 0) {
            kw::mbarrier_arrive_expect_tx(&full, sizeof tile_a + sizeof tile_b);  // TMA fills up with zeros
            kw::cp_async_bulk_tensor_2d(tile_a, &a_map, &full, k, row);
            kw::cp_async_bulk_tensor_2d(tile_b, &b_map, &full, k, column);
        }
        kw::mbarrier_wait_parity(&full, parity);
        kw::wgmma_fence();
        multiply<1, kBlockN>(acc, tile_a, tile_b, true);
        kw::wgmma_commit_group();
        kw::wgmma_wait_group<0>();
        __syncthreads();  // all warps have read the buffer
    }
    store_fragment<kBlockN>(out, acc[0], row, column, M, N);
}
