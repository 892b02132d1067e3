// Persistent clusters of two blocks with tiles of 128 x 256, multicast of B and stores through TMA; see rung 7. `Order`
// is one of order.cuh.
#pragma once

#include "kw/ptx/cluster.cuh"
#include "kw/ptx/setmaxnreg.cuh"
#include "order.cuh"
#include "store.cuh"

constexpr int kBlockM = 128, kBlockN = 256, kNumConsumers = 2, kNumStages = 4, kCluster = 2;
constexpr int kPartB = kBlockN / kCluster;  // rows of B that each block loads
constexpr int kBytesA = kBlockM * kRowBytes, kStageBytes = (kBlockM + kBlockN) * kRowBytes;

template <typename Order>
__device__ __forceinline__ void gemm(const kw::TensorMap& a_map, const kw::TensorMap& b_map,
                                     const kw::TensorMap& out_map, int M, int N, int K) {
    extern __shared__ __align__(1024) unsigned char stages[];
    unsigned char* const store_buffers = stages + kNumStages * kStageBytes;
    auto& barriers = *reinterpret_cast<kw::PipelineBarriers<kNumStages>*>(store_buffers +
                                                                          kNumConsumers * kStoreBuffers * kStoreBytes);
    const int rank = kw::cluster_ctarank(), k_tiles = ceil_div(K, kBlockK);
    const TileList<Order> tiles = {reinterpret_cast<int*>(&barriers + 1), ceil_div(M, kCluster * kBlockM),
                                   ceil_div(N, kBlockN), static_cast<int>(blockIdx.x) / kCluster,
                                   static_cast<int>(gridDim.x) / kCluster};
    tiles.fill();
    if (threadIdx.x == 0) {
        barriers.init<kNumConsumers * kCluster>();
        kw::fence_mbarrier_init();
    }
    kw::barrier_cluster_arrive();  // orders the list of tiles too
    kw::barrier_cluster_wait();
    kw::PipelineState<kNumStages> state;
    if (threadIdx.x < 128) {
        kw::setmaxnreg_dec<40>();
        if (threadIdx.x == 0) {
            for (int tile = 0; tile < tiles.count(); ++tile) {
                const kw::TileIndex index = tiles[tile];
                const int row = (index.m * kCluster + rank) * kBlockM, column = index.n * kBlockN + rank * kPartB;
                for (int k_tile = 0; k_tile < k_tiles; ++k_tile, state.advance()) {
                    unsigned char* const stage = stages + state.stage * kStageBytes;
                    unsigned long long* const full = &barriers.full[state.stage];
                    kw::mbarrier_wait_parity(&barriers.empty[state.stage], state.parity ^ 1);
                    kw::mbarrier_arrive_expect_tx(full, kStageBytes);
                    kw::cp_async_bulk_tensor_2d(stage, &a_map, full, k_tile * kBlockK, row);
                    unsigned char* const part_b = stage + kBytesA + rank * kPartB * kRowBytes;
                    kw::cp_async_bulk_tensor_2d_multicast(part_b, &b_map, full, 0b11, k_tile * kBlockK, column);
                }
            }
            // No block may exit while the other one still arrives at its barriers.
            for (int stage = 0; stage < kNumStages; ++stage, state.advance())
                kw::mbarrier_wait_parity(&barriers.empty[state.stage], state.parity ^ 1);
        }
    } else {
        kw::setmaxnreg_inc<232>();
        const int consumer = threadIdx.x / 128 - 1, thread = threadIdx.x % 128;
        unsigned char* const buffers = store_buffers + consumer * kStoreBuffers * kStoreBytes;
        int buffer = 0;
        for (int tile = 0; tile < tiles.count(); ++tile) {
            const kw::TileIndex index = tiles[tile];
            const int row = (index.m * kCluster + rank) * kBlockM + 64 * consumer;
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
            if (row < M)
                tma_store_fragment<kBlockN>(&out_map, acc[0], buffers, buffer, row, index.n * kBlockN, 1 + consumer);
        }
        if (thread == 0) kw::cp_async_bulk_wait_group_read<0>();
    }
}
