// Reduction over a block: warps write their partials to shared memory, and every warp reduces all of them.
#pragma once

#include "kw/reduce/warp.cuh"

namespace kw {

template <typename Partial, int kNumWarps>
struct BlockReduceSmem {
    static_assert(kNumWarps <= 32, "a block has at most 32 warps");
    Partial partials[kNumWarps];
};

// Combines the partials of all threads of a block in a fixed order; every thread gets the result. A second call needs
// another buffer, or a barrier before it.
template <typename Partial, int kNumWarps>
__device__ __forceinline__ Partial block_reduce(BlockReduceSmem<Partial, kNumWarps>& smem, Partial local) {
    const unsigned lane = threadIdx.x % 32;
    local = warp_reduce(local);
    if (lane == 0) smem.partials[threadIdx.x / 32] = local;
    __syncthreads();
    identity(local);
    local = rebase(local, smem.partials[0]);
    if (lane < kNumWarps) local = rebase(smem.partials[lane], smem.partials[0]);
    return warp_reduce(local);
}

}  // namespace kw
