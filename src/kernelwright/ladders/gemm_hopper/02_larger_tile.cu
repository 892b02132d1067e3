// A 128 x 128 tile per warpgroup: two fragments of 64 rows share the tile of B.
//
// rung: question   Is the traffic between L2 and shared memory the limit?
// rung: hypothesis 128 x 128 needs half the bytes per FLOP: 512 cycles of wgmma per 32 KiB, which also take 512 at the
// rung: hypothesis L2's 64 bytes per cycle. Fewer blocks fit an SM to hide each other's loads. 1.4 times faster.
// rung: next       Measured: 547 TFLOP/s at 8192, 1.9 times faster, since three blocks still fit (154 registers). At
// rung: next       1024 its 64 blocks leave half of the SMs idle. Each block still waits for every load: load ahead.
//
// kw: entry  gemm_larger_tile
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: map    a_map: a[128, 64]
// kw: map    b_map: b[128, 64]
// kw: grid   cdiv(N, 128), cdiv(M, 128)
// kw: block  128
// kw: args   a_map, b_map, out, M, N, K

#include "tile.cuh"

constexpr int kBlockM = 128, kBlockN = 128, kFragments = kBlockM / 64;

extern "C" __global__ void __launch_bounds__(128)
gemm_larger_tile(const __grid_constant__ kw::TensorMap a_map, const __grid_constant__ kw::TensorMap b_map,
                 kw::bf16* out, int M, int N, int K) {
    __shared__ __align__(1024) unsigned char tile_a[kBlockM * kRowBytes], tile_b[kBlockN * kRowBytes];
    __shared__ unsigned long long full;
    const int row = blockIdx.y * kBlockM, column = blockIdx.x * kBlockN;
    if (threadIdx.x == 0) {
        kw::mbarrier_init(&full);
        kw::fence_mbarrier_init();
    }
    __syncthreads();
    float acc[kFragments][kBlockN / 2] = {};
    unsigned parity = 0;
    for (int k = 0; k < K; k += kBlockK, parity ^= 1) {
        if (threadIdx.x == 0) {
            kw::mbarrier_arrive_expect_tx(&full, sizeof tile_a + sizeof tile_b);
            kw::cp_async_bulk_tensor_2d(tile_a, &a_map, &full, k, row);
            kw::cp_async_bulk_tensor_2d(tile_b, &b_map, &full, k, column);
        }
        kw::mbarrier_wait_parity(&full, parity);
        kw::wgmma_fence();
        multiply<kFragments, kBlockN>(acc, tile_a, tile_b, true);
        kw::wgmma_commit_group();
        kw::wgmma_wait_group<0>();
        __syncthreads();
    }
#pragma unroll
    for (int f = 0; f < kFragments; ++f) store_fragment<kBlockN>(out, acc[f], row + 64 * f, column, M, N);
}
