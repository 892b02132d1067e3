// Partial results of a variance: mean and sum of squares around it, combined pairwise, so that no large squares cancel.
// Source: Chan, Golub & LeVeque 1983, "Algorithms for computing the sample variance".
#pragma once

#include "kw/ptx/approx.cuh"
#include "kw/reduce/warp.cuh"

namespace kw {

struct Moments : float4 {};  // x: count; y: mean - shift; z: sum of squares around the mean; w: shift, one per warp

__device__ __forceinline__ void identity(Moments& none) { none = {0.0f, 0.0f, 0.0f, 0.0f}; }

// Bitwise symmetric in a and b: both lanes of a shuffle pair compute it and must agree.
__device__ __forceinline__ Moments combine(Moments a, Moments b) {
    const float count = a.x + b.x, rcp_count = count > 0.0f ? rcp_approx(count) : 0.0f, delta = a.y - b.y;
    const float mean = 0.5f * (a.y + b.y) + 0.5f * delta * ((a.x - b.x) * rcp_count);
    return {count, mean, a.z + b.z + delta * delta * (a.x * b.x * rcp_count), a.w};
}

// Moments relative to the mean of the first warp, which cannot be an outlier as a single element can.
__device__ __forceinline__ Moments rebase(Moments partial, Moments first) {
    const float shift = first.w + first.y;
    return {partial.x, partial.x > 0.0f ? (partial.w - shift) + partial.y : 0.0f, partial.z, shift};
}

__device__ __forceinline__ Moments warp_reduce(Moments local) {
#pragma unroll
    for (int offset = 16; offset; offset /= 2) {
        const float count = __shfl_xor_sync(~0u, local.x, offset), mean = __shfl_xor_sync(~0u, local.y, offset);
        local = combine(local, Moments{count, mean, __shfl_xor_sync(~0u, local.z, offset), local.w});
    }
    return local;
}

}  // namespace kw
