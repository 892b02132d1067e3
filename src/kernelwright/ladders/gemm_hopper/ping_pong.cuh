// Persistent blocks in which each of two consumer warpgroups has a tile of its own: one multiplies while the other
// stores. `kCluster` blocks, one above the other, share the tile of B by multicast.
#pragma once

#include "kw/ptx/cluster.cuh"
#include "kw/ptx/setmaxnreg.cuh"
#include "kw/scheduler/tile_scheduler.cuh"
#include "store.cuh"

constexpr int kNumConsumers = 2, kThreads = 128 * (kNumConsumers + 1), kBandRows = 8;

// The consumers multiply in turns. A consumer may only wait for a buffer whose previous use was full, since a parity
// distinguishes consecutive phases only: the turn passes when the last buffer of a tile is full.
constexpr int kTurnBarrier = 8;
__device__ __forceinline__ void wait_for_turn(int consumer) { kw::bar_sync(kTurnBarrier + consumer, 256); }
__device__ __forceinline__ void pass_turn(int consumer) { kw::bar_arrive(kTurnBarrier + 1 - consumer, 256); }

template <int kBlockM, int kBlockN, int kNumStages, int kCluster>
struct PingPong {
    static constexpr int kFragments = kBlockM / 64, kPartB = kBlockN / kCluster;
    static constexpr int kBytesA = kBlockM * kRowBytes, kStageBytes = (kBlockM + kBlockN) * kRowBytes;

    const kw::TensorMap &a_map, &b_map, &out_map;
    const int M, N, k_tiles, tiles_m, tiles_n, rank;
    unsigned char* const stages;

    __device__ PingPong(const kw::TensorMap& a_map, const kw::TensorMap& b_map, const kw::TensorMap& out_map, int M,
                        int N, int K, unsigned char* stages)
        : a_map(a_map), b_map(b_map), out_map(out_map), M(M), N(N), k_tiles(ceil_div(K, kBlockK)),
          tiles_m(ceil_div(M, kCluster * kBlockM)), tiles_n(ceil_div(N, kBlockN)),
          rank(kCluster > 1 ? kw::cluster_ctarank() : 0), stages(stages) {}

    __device__ unsigned char* store_buffers() const { return stages + kNumStages * kStageBytes; }
    __device__ kw::PipelineBarriers<kNumStages>& barriers() const {
        return *reinterpret_cast<kw::PipelineBarriers<kNumStages>*>(store_buffers() +
                                                                    kNumConsumers * kStoreBuffers * kStoreBytes);
    }
    __device__ int first_tile() const { return blockIdx.x / kCluster; }
    __device__ int tile_step() const { return gridDim.x / kCluster; }
    __device__ int num_tiles() const { return tiles_m * tiles_n; }

    __device__ __forceinline__ void produce() const {
        kw::PipelineState<kNumStages> state;
        for (int tile = first_tile(); tile < num_tiles(); tile += tile_step()) {
            const kw::TileIndex index = kw::grouped_raster(tile, tiles_m, tiles_n, kBandRows);
            const int row = (index.m * kCluster + rank) * kBlockM, column = index.n * kBlockN + rank * kPartB;
            for (int k_tile = 0; k_tile < k_tiles; ++k_tile, state.advance()) {
                unsigned char* const smem_a = stages + state.stage * kStageBytes;
                unsigned char* const smem_b = smem_a + kBytesA + rank * kPartB * kRowBytes;
                unsigned long long* const full = &barriers().full[state.stage];
                kw::mbarrier_wait_parity(&barriers().empty[state.stage], state.parity ^ 1);
                kw::mbarrier_arrive_expect_tx(full, kStageBytes);
                kw::cp_async_bulk_tensor_2d(smem_a, &a_map, full, k_tile * kBlockK, row);
                if constexpr (kCluster > 1) {
                    kw::cp_async_bulk_tensor_2d_multicast(smem_b, &b_map, full, (1 << kCluster) - 1, k_tile * kBlockK,
                                                          column);
                } else {
                    kw::cp_async_bulk_tensor_2d(smem_b, &b_map, full, k_tile * kBlockK, column);
                }
            }
        }
        if constexpr (kCluster > 1) {  // no block may exit while others still arrive at its barriers
            for (int stage = 0; stage < kNumStages; ++stage, state.advance())
                kw::mbarrier_wait_parity(&barriers().empty[state.stage], state.parity ^ 1);
        }
    }

    // Marks a buffer as empty in every block that writes to it.
    __device__ __forceinline__ void release(int stage) const {
        const int thread = threadIdx.x % 128;
        if constexpr (kCluster > 1) {
            if (thread < kCluster) kw::mbarrier_arrive_cluster(&barriers().empty[stage], thread);
        } else {
            if (thread == 0) kw::mbarrier_arrive(&barriers().empty[stage]);
        }
    }

    __device__ __forceinline__ void consume() const {
        const int consumer = threadIdx.x / 128 - 1;
        unsigned char* const buffers = store_buffers() + consumer * kStoreBuffers * kStoreBytes;
        int buffer = 0;
        kw::PipelineState<kNumStages> state;
        state.skip(consumer * k_tiles);
        const int first = first_tile() + consumer * tile_step();
        for (int tile = first; tile < num_tiles(); tile += kNumConsumers * tile_step()) {
            const kw::TileIndex index = kw::grouped_raster(tile, tiles_m, tiles_n, kBandRows);
            const bool is_last = tile + tile_step() >= num_tiles();  // of the block
            if (tile != first_tile() && k_tiles > 0) wait_for_turn(consumer);
            float acc[kFragments][kBlockN / 2];
            if (k_tiles == 0) zero(acc);
            int previous = 0;
            for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
                const unsigned char* const stage = stages + state.stage * kStageBytes;
                kw::mbarrier_wait_parity(&barriers().full[state.stage], state.parity);
                if (k_tile == k_tiles - 1 && !is_last) pass_turn(consumer);
                kw::wgmma_fence();
                multiply<kFragments, kBlockN>(acc, stage, stage + kBytesA, k_tile > 0);
                kw::wgmma_commit_group();
                kw::wgmma_wait_group<1>();
                if (k_tile > 0) release(previous);
                previous = state.stage;
                state.advance();
            }
            kw::wgmma_wait_group<0>();
            if (k_tiles > 0) release(previous);
            state.skip(k_tiles);
            const int row = (index.m * kCluster + rank) * kBlockM;
#pragma unroll
            for (int f = 0; f < kFragments; ++f)
                if (row + 64 * f < M)
                    tma_store_fragment<kBlockN>(&out_map, acc[f], buffers, buffer, row + 64 * f, index.n * kBlockN,
                                                1 + consumer);
        }
        if (threadIdx.x % 128 == 0) kw::cp_async_bulk_wait_group_read<0>();
    }

    __device__ __forceinline__ void run() const {
        if (threadIdx.x == 0) {
            barriers().template init<kCluster>();
            kw::fence_mbarrier_init();
            if (k_tiles > 0) {
                kw::prefetch_tensormap(&a_map);
                kw::prefetch_tensormap(&b_map);
            }
            kw::prefetch_tensormap(&out_map);
        }
        if constexpr (kCluster > 1) {
            kw::barrier_cluster_arrive();
            kw::barrier_cluster_wait();
        } else {
            __syncthreads();
        }
        if (threadIdx.x < 128) {
            kw::setmaxnreg_dec<24>();
            if (threadIdx.x == 0) produce();
        } else {
            kw::setmaxnreg_inc<240>();
            consume();
        }
    }
};
