// Two consumer warpgroups share a tile of 128 x 256: each multiplies 64 rows with all 256 columns.
//
// rung: question   Do tensor cores wait while a warpgroup waits?
// rung: hypothesis While one warpgroup waits for its products and releases a buffer, those of the other run. 128 x 256
// rung: hypothesis needs a quarter less of the L2 per FLOP than 128 x 128, and wgmma reads B once for 256 columns of
// rung: hypothesis A's fragment instead of twice for 128. 1.2 times faster.
// rung: next       Measured: 1.05 times faster at 8192, where the GPU draws its limit of 700 W; 0.68 times at 1024,
// rung: next       which has 32 tiles. 16384 stays at 485 TFLOP/s: a wave needs more of A and B than the L2 holds.
// rung: next       First, smaller gaps.
//
// kw: entry  gemm_two_consumers
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: map    a_map: a[128, 64]
// kw: map    b_map: b[256, 64]
// kw: grid   cdiv(N, 256), cdiv(M, 128)
// kw: block  384
// kw: shared 4 * 49152 + 128
// kw: args   a_map, b_map, out, M, N, K

#include "kw/ptx/setmaxnreg.cuh"
#include "tile.cuh"

constexpr int kBlockM = 128, kBlockN = 256, kNumConsumers = 2, kNumStages = 4;
constexpr int kBytesA = kBlockM * kRowBytes, kStageBytes = (kBlockM + kBlockN) * kRowBytes;

extern "C" __global__ void __launch_bounds__(128 * (kNumConsumers + 1), 1)
gemm_two_consumers(const __grid_constant__ kw::TensorMap a_map, const __grid_constant__ kw::TensorMap b_map,
                   kw::bf16* out, int M, int N, int K) {
    extern __shared__ __align__(1024) unsigned char stages[];
    auto& barriers = *reinterpret_cast<kw::PipelineBarriers<kNumStages>*>(stages + kNumStages * kStageBytes);
    const int row = blockIdx.y * kBlockM, column = blockIdx.x * kBlockN, k_tiles = ceil_div(K, kBlockK);
    if (threadIdx.x == 0) {
        barriers.init<kNumConsumers>();
        kw::fence_mbarrier_init();
    }
    __syncthreads();
    kw::PipelineState<kNumStages> state;
    if (threadIdx.x < 128) {
        kw::setmaxnreg_dec<24>();
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
        kw::setmaxnreg_inc<240>();
        const int consumer = threadIdx.x / 128 - 1;
        float acc[1][kBlockN / 2] = {};
        for (int k_tile = 0; k_tile < k_tiles; ++k_tile, state.advance()) {
            const unsigned char* const stage = stages + state.stage * kStageBytes;
            kw::mbarrier_wait_parity(&barriers.full[state.stage], state.parity);
            kw::wgmma_fence();
            multiply<1, kBlockN>(acc, stage + Matrix::row_offset(64 * consumer), stage + kBytesA, true);
            kw::wgmma_commit_group();
            kw::wgmma_wait_group<0>();
            if (threadIdx.x % 128 == 0) kw::mbarrier_arrive(&barriers.empty[state.stage]);
        }
        store_fragment<kBlockN>(out, acc[0], row + 64 * consumer, column, M, N);
    }
}
