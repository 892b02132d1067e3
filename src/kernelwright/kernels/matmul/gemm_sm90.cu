// D = activation(alpha A B + bias + beta residual) on Hopper's tensor cores; the configuration is in macros.
//
// A producer warp loads tiles of A and B through TMA into a ring of buffers; consumer warpgroups multiply them with wgmma
// and keep the accumulators in registers. Blocks are persistent. A cluster shares loads by multicast, or the steps of K
// (SPLIT_K), whose partial sums it adds in a fixed order through distributed shared memory. With TERMS 2, operands are
// FP16 pairs (high, low * 2^11) of an FP32 matrix, multiplied three times; see split.cu.
// Bound: tensor cores where M, N and K are in the thousands; the bytes of the weights below about 200 rows.
// Source: PTX ISA; fast.cu (clusters, order of tiles); Ootomo & Yokota 2022, arXiv:2203.03341 (two terms).
#include "gemm_epilogue.cuh"
#include "gemm_mainloop.cuh"
#if SPLIT_IN_LOOP
#include "split_loop.cuh"
#endif
#include "kw/ptx/setmaxnreg.cuh"

__device__ __forceinline__ void sum_products(const Block& block, kw::TileIndex at, int consumer, bool is_last,
                                             kw::PipelineState<kNumStages>& state, Accumulator& acc) {
#if SPLIT_IN_LOOP
    split_main_loop(block, consumer, at.m, state, acc);
#else
    if constexpr (kOverlapped) {
        overlapped_main_loop(block, consumer, is_last, state, acc);
    } else if constexpr (kPromoteTiles > 0) {
        promoted_main_loop(block, consumer, is_last, state, acc);
    } else {
        main_loop(block, consumer, is_last, state, acc);
    }
#endif
}

__device__ __forceinline__ void consume(const Block& block, unsigned char* store_buffers, ColumnFactors* all_factors) {
    const int consumer = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0) - 1;  // uniform, as the compiler knows
    unsigned char* const buffers = store_buffers + consumer * kStoreBuffers * kStoreBytes;
    ColumnFactors& factors = all_factors[ColumnFactors::kIsUsed ? consumer : 0];
    kw::PipelineState<kNumStages> state;
    int buffer = 0;
    if (kPingPong && consumer > 0) state.skip(consumer * block.k_tiles());
    for (int tile = block.first_tile() + (kPingPong ? consumer : 0) * block.tile_step(); tile < block.num_tiles();
         tile += (kPingPong ? kNumConsumers : 1) * block.tile_step()) {
        const kw::TileIndex at = block.position(tile);
        ColumnLoader columns;
        if constexpr (ColumnFactors::kIsUsed && kSplitK == 1) columns.load(block.p, at.n, at.batch);
        RowScales row_scales;
        row_scales.load(block.p, at.m + (kPingPong ? 0 : consumer) * kFragments * 64, at.batch);
        const bool is_last = tile + block.tile_step() >= block.num_tiles();  // of the block
        if (kPingPong && tile != block.first_tile()) kw::bar_sync(kTurnBarrier + consumer, 256);
        Accumulator acc;
        sum_products(block, at, consumer, is_last, state, acc);
        if constexpr (kPingPong) state.skip((kNumConsumers - 1) * block.k_tiles());
        if constexpr (kSplitK > 1) {
            reduce_and_store(block, acc, consumer, at);
        } else {
            if constexpr (ColumnFactors::kIsUsed) columns.store(factors, consumer);
            store_tile(block.p, factors, row_scales, acc, buffers, at, consumer, buffer);
        }
    }
    if (kTmaStore && threadIdx.x % 128 == 0) kw::cp_async_bulk_wait_group_read<0>();
}

extern "C" __global__ void __launch_bounds__(kThreads, MIN_BLOCKS)
gemm_sm90(const __grid_constant__ GemmParams p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    unsigned char* const stages = shared;
    unsigned char* const store_buffers = stages + kNumStages * kStageBytes;
    SharedStorage& storage = *reinterpret_cast<SharedStorage*>(store_buffers + kNumConsumers * kStoreBuffers * kStoreBytes);
    const Block block = {p, stages, storage.barriers, storage.block_scales,
                         kClusterSize > 1 ? static_cast<int>(kw::cluster_ctarank()) : 0};
    if (threadIdx.x == 0) {
        storage.barriers.init<kConsumersPerTile * kClusterM * kClusterN>();
        kw::fence_mbarrier_init();
        for (int term = 0; term < kTerms; ++term) {
            kw::prefetch_tensormap(&p.a[term]);
            kw::prefetch_tensormap(&p.b[term]);
        }
    }
    if constexpr (kClusterSize > 1) {
        kw::barrier_cluster_arrive();
        kw::barrier_cluster_wait();
    } else {
        __syncthreads();
    }
    kw::griddepcontrol_wait();
    if (threadIdx.x < 128) {
        if constexpr (PRODUCER_REGISTERS > 0) kw::setmaxnreg_dec<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) produce(block);
        if constexpr (kSplitK > 1) {
            __syncwarp();
            for (int i = 0; i < 2; ++i) {
                kw::barrier_cluster_arrive();
                kw::barrier_cluster_wait();
            }
        }
    } else {
        if constexpr (CONSUMER_REGISTERS > 0) kw::setmaxnreg_inc<CONSUMER_REGISTERS>();
        consume(block, store_buffers, storage.factors);
    }
}

#if TERMS == 2
#include "recompute_lost.cuh"
#endif
