// Clusters of two blocks, one above the other: each loads half of their common tile of B for both (multicast).
//
// rung: question   Does the traffic from L2 still limit?
// rung: hypothesis A block reads 48 KiB of L2 per K-tile, in the 1,024 cycles of its wgmmas: 48 of the 64 bytes per
// rung: hypothesis cycle. Two blocks that share B read 32 KiB each: a third less, and less power for the same work.
// rung: hypothesis Against that, a buffer is empty only when both blocks have read it. 1.05 times faster.
// rung: next       Measured: 1.01 times faster at 8192, but 1.38 at 16384 and 1.24 at 8192 x 28672 x 4096, which were
// rung: next       limited by the L2. ncu at 8192: L2 hit rate 65 %, 2.4 GB from DRAM for operands of 268 MB. Next: the
// rung: next       stores.
//
// kw: entry  gemm_multicast
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: map    a_map: a[128, 64]
// kw: map    b_map: b[128, 64]
// kw: grid   2 * min(sms // 2, cdiv(M, 256) * cdiv(N, 256))
// kw: block  384
// kw: cluster 2
// kw: shared 4 * 49152 + 128
// kw: args   a_map, b_map, out, M, N, K

#include "kw/ptx/cluster.cuh"
#include "kw/ptx/setmaxnreg.cuh"
#include "tile.cuh"

constexpr int kBlockM = 128, kBlockN = 256, kNumConsumers = 2, kNumStages = 4, kCluster = 2;
constexpr int kPartB = kBlockN / kCluster;  // rows of B that each block loads
constexpr int kBytesA = kBlockM * kRowBytes, kStageBytes = (kBlockM + kBlockN) * kRowBytes;

extern "C" __global__ void __launch_bounds__(128 * (kNumConsumers + 1), 1)
gemm_multicast(const __grid_constant__ kw::TensorMap a_map, const __grid_constant__ kw::TensorMap b_map,
               kw::bf16* out, int M, int N, int K) {
    extern __shared__ __align__(1024) unsigned char stages[];
    auto& barriers = *reinterpret_cast<kw::PipelineBarriers<kNumStages>*>(stages + kNumStages * kStageBytes);
    const int rank = kw::cluster_ctarank(), k_tiles = ceil_div(K, kBlockK);
    const int tiles_n = ceil_div(N, kBlockN), num_tiles = ceil_div(M, kCluster * kBlockM) * tiles_n;  // of clusters
    if (threadIdx.x == 0) {
        barriers.init<kNumConsumers * kCluster>();
        kw::fence_mbarrier_init();
    }
    kw::barrier_cluster_arrive();
    kw::barrier_cluster_wait();
    kw::PipelineState<kNumStages> state;
    if (threadIdx.x < 128) {
        kw::setmaxnreg_dec<24>();
        if (threadIdx.x == 0) {
            for (int tile = blockIdx.x / kCluster; tile < num_tiles; tile += gridDim.x / kCluster) {
                const int row = (tile / tiles_n * kCluster + rank) * kBlockM, column = tile % tiles_n * kBlockN;
                for (int k_tile = 0; k_tile < k_tiles; ++k_tile, state.advance()) {
                    unsigned char* const stage = stages + state.stage * kStageBytes;
                    unsigned long long* const full = &barriers.full[state.stage];
                    kw::mbarrier_wait_parity(&barriers.empty[state.stage], state.parity ^ 1);
                    kw::mbarrier_arrive_expect_tx(full, kStageBytes);
                    kw::cp_async_bulk_tensor_2d(stage, &a_map, full, k_tile * kBlockK, row);
                    unsigned char* const part_b = stage + kBytesA + rank * kPartB * kRowBytes;
                    kw::cp_async_bulk_tensor_2d_multicast(part_b, &b_map, full, 0b11, k_tile * kBlockK,
                                                          column + rank * kPartB);
                }
            }
            // No block may exit while the other one still arrives at its barriers.
            for (int stage = 0; stage < kNumStages; ++stage, state.advance())
                kw::mbarrier_wait_parity(&barriers.empty[state.stage], state.parity ^ 1);
        }
    } else {
        kw::setmaxnreg_inc<240>();
        const int consumer = threadIdx.x / 128 - 1, thread = threadIdx.x % 128;
        for (int tile = blockIdx.x / kCluster; tile < num_tiles; tile += gridDim.x / kCluster) {
            const int row = (tile / tiles_n * kCluster + rank) * kBlockM, column = tile % tiles_n * kBlockN;
            float acc[1][kBlockN / 2];
            if (k_tiles == 0) zero(acc);
            int previous = 0;
            for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
                const unsigned char* const stage = stages + state.stage * kStageBytes;
                kw::mbarrier_wait_parity(&barriers.full[state.stage], state.parity);
                kw::wgmma_fence();
                multiply<1, kBlockN>(acc, stage + Matrix::row_offset(64 * consumer), stage + kBytesA, k_tile > 0);
                kw::wgmma_commit_group();
                kw::wgmma_wait_group<1>();
                if (k_tile > 0 && thread < kCluster) kw::mbarrier_arrive_cluster(&barriers.empty[previous], thread);
                previous = state.stage;
                state.advance();
            }
            kw::wgmma_wait_group<0>();
            if (k_tiles > 0 && thread < kCluster) kw::mbarrier_arrive_cluster(&barriers.empty[previous], thread);
            store_fragment<kBlockN>(out, acc[0], row + 64 * consumer, column, M, N);
        }
    }
}
