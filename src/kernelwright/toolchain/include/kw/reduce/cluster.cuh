// Reduction over a cluster of blocks through distributed shared memory (sm_90 and later), in a fraction of the latency of
// L2: every warp sends its partial to all blocks, whose mbarriers count the bytes.
#pragma once

#include "kw/ptx/cluster.cuh"
#include "kw/reduce/warp.cuh"

namespace kw {

template <typename Partial, int kClusterSize, int kNumWarps>
struct ClusterReduceSmem {
    Partial partials[2][kClusterSize * kNumWarps];
    unsigned long long mbarriers[2];
};

// Initializes the mbarriers; called once by all threads, with their loads in flight.
template <typename Partial, int kClusterSize, int kNumWarps>
__device__ __forceinline__ void cluster_reduce_init(ClusterReduceSmem<Partial, kClusterSize, kNumWarps>& smem) {
    if (threadIdx.x == 0)
        for (auto& mbarrier : smem.mbarriers) mbarrier_init(&mbarrier);
    barrier_cluster_arrive_init();
}

// Combines the partials of all threads of a row, in a fixed order; `round` counts the calls of a cluster. Two buffers
// suffice: a block one round ahead writes the other buffer, and it cannot be two rounds ahead, since each round waits
// for all blocks.
template <typename Partial, int kClusterSize, int kNumWarps>
__device__ __forceinline__ Partial cluster_reduce(ClusterReduceSmem<Partial, kClusterSize, kNumWarps>& smem,
                                                  unsigned round, Partial local) {
    constexpr int kPartials = kClusterSize * kNumWarps;
    const unsigned lane = threadIdx.x % 32, writer = blockIdx.x % kClusterSize * kNumWarps + threadIdx.x / 32;
    Partial* const partials = smem.partials[round % 2];
    unsigned long long* const mbarrier = &smem.mbarriers[round % 2];
    local = warp_reduce(local);
    if (round == 0) barrier_cluster_wait();
    if (threadIdx.x == 0) mbarrier_arrive_expect_tx(mbarrier, kPartials * sizeof(Partial));
    if (lane < kClusterSize) st_async(mapa(&partials[writer], lane), local, mapa(mbarrier, lane));
    mbarrier_wait_parity(mbarrier, round / 2 % 2);
    identity(local);
    local = rebase(local, partials[0]);
#pragma unroll
    for (int i = 0; i < kPartials; i += 32)
        if (i + lane < kPartials) {
            const Partial other = rebase(partials[i + lane], partials[0]);
            local = i ? combine(local, other) : other;
        }
    return warp_reduce(local);
}

}  // namespace kw
