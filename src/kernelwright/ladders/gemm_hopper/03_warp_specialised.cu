// A producer warp loads ahead into a ring of three buffers while a consumer warpgroup multiplies.
//
// rung: question   What does it cost that a block waits for each load?
// rung: hypothesis While a K-tile is multiplied, 512 cycles, the next two are loaded, in place of what other blocks
// rung: hypothesis happen to hide; the producer gives registers to the consumer (setmaxnreg). Predicted 1.2 times
// rung: hypothesis faster for one block with five buffers per SM, measured 0.91: tensor cores idle during its start and
// rung: hypothesis its stores. Two blocks with three buffers overlap these: 1.1 times faster than rung 2
// rung: hypothesis (written after a first timing).
// rung: next       Measured: 596 TFLOP/s at 8192, 1.09 times faster; 1.7 times at 1024. B is read from shared memory
// rung: next       once for each fragment of 64 rows: a wider fragment, and a second warpgroup to fill the gaps.
//
// kw: entry  gemm_warp_specialised
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: map    a_map: a[128, 64]
// kw: map    b_map: b[128, 64]
// kw: grid   cdiv(N, 128), cdiv(M, 128)
// kw: block  256
// kw: shared 3 * 32768 + 128
// kw: args   a_map, b_map, out, M, N, K

#include "kw/ptx/setmaxnreg.cuh"
#include "tile.cuh"

constexpr int kBlockM = 128, kBlockN = 128, kFragments = kBlockM / 64, kNumStages = 3;
constexpr int kBytesA = kBlockM * kRowBytes, kStageBytes = (kBlockM + kBlockN) * kRowBytes;

extern "C" __global__ void __launch_bounds__(256, 2)
gemm_warp_specialised(const __grid_constant__ kw::TensorMap a_map, const __grid_constant__ kw::TensorMap b_map,
                      kw::bf16* out, int M, int N, int K) {
    extern __shared__ __align__(1024) unsigned char stages[];
    auto& barriers = *reinterpret_cast<kw::PipelineBarriers<kNumStages>*>(stages + kNumStages * kStageBytes);
    const int row = blockIdx.y * kBlockM, column = blockIdx.x * kBlockN, k_tiles = ceil_div(K, kBlockK);
    if (threadIdx.x == 0) {
        barriers.init<1>();
        kw::fence_mbarrier_init();
    }
    __syncthreads();
    kw::PipelineState<kNumStages> state;
    if (threadIdx.x < 128) {
        kw::setmaxnreg_dec<40>();
        if (threadIdx.x == 0) {
            for (int k_tile = 0; k_tile < k_tiles; ++k_tile, state.advance()) {
                unsigned char* const stage = stages + state.stage * kStageBytes;
                unsigned long long* const full = &barriers.full[state.stage];
                kw::mbarrier_wait_parity(&barriers.empty[state.stage], state.parity ^ 1);
                kw::mbarrier_arrive_expect_tx(full, kStageBytes);
                kw::cp_async_bulk_tensor_2d(stage, &a_map, full, k_tile * kBlockK, row);
                kw::cp_async_bulk_tensor_2d(stage + kBytesA, &b_map, full, k_tile * kBlockK, column);
            }
        }
    } else {
        kw::setmaxnreg_inc<216>();
        float acc[kFragments][kBlockN / 2] = {};
        for (int k_tile = 0; k_tile < k_tiles; ++k_tile, state.advance()) {
            const unsigned char* const stage = stages + state.stage * kStageBytes;
            kw::mbarrier_wait_parity(&barriers.full[state.stage], state.parity);
            kw::wgmma_fence();
            multiply<kFragments, kBlockN>(acc, stage, stage + kBytesA, true);
            kw::wgmma_commit_group();
            kw::wgmma_wait_group<0>();
            if (threadIdx.x % 128 == 0) kw::mbarrier_arrive(&barriers.empty[state.stage]);
        }
#pragma unroll
        for (int f = 0; f < kFragments; ++f) store_fragment<kBlockN>(out, acc[f], row + 64 * f, column, M, N);
    }
}
