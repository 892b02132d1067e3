// A warpgroup issues the next K-tile before it waits for the last one; the first starts from zero in the instruction.
//
// rung: question   How long do tensor cores wait between two K-tiles of a warpgroup?
// rung: hypothesis Waiting for all products of a K-tile drains the pipeline: some 60 cycles pass between its last wgmma
// rung: hypothesis and the next one's first, of 1,024 for both consumers, and the other consumer hides most of them.
// rung: hypothesis With one group in flight, tensor cores always have work. Zeroing 128 registers moves into the first
// rung: hypothesis wgmma. 1.02 times faster.
// rung: next       Measured: no difference at any size, so the second consumer hides the gap; the loop has fewer
// rung: next       instructions (890 in place of 981), and the form is needed once a consumer multiplies alone. Next:
// rung: next       start and end of a block.
//
// kw: entry  gemm_groups_in_flight
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
gemm_groups_in_flight(const __grid_constant__ kw::TensorMap a_map, const __grid_constant__ kw::TensorMap b_map,
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
        float acc[1][kBlockN / 2];
        if (k_tiles == 0) zero(acc);
        int previous = 0;
        for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
            const unsigned char* const stage = stages + state.stage * kStageBytes;
            kw::mbarrier_wait_parity(&barriers.full[state.stage], state.parity);
            kw::wgmma_fence();
            multiply<1, kBlockN>(acc, stage + Matrix::row_offset(64 * consumer), stage + kBytesA, k_tile > 0);
            kw::wgmma_commit_group();
            kw::wgmma_wait_group<1>();  // for all but this K-tile
            if (k_tile > 0 && threadIdx.x % 128 == 0) kw::mbarrier_arrive(&barriers.empty[previous]);
            previous = state.stage;
            state.advance();
        }
        kw::wgmma_wait_group<0>();
        store_fragment<kBlockN>(out, acc[0], row + 64 * consumer, column, M, N);
    }
}
