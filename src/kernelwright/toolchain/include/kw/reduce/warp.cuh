// Reductions over a warp: every lane gets the result, in the same order in each run. A partial result of another type has
// overloads of `identity`, `combine` and `warp_reduce` in its own namespace; those of float and float2 are plain sums.
#pragma once

namespace kw {

__device__ __forceinline__ void identity(float& none) { none = 0.0f; }
__device__ __forceinline__ void identity(float2& none) { none = {0.0f, 0.0f}; }

__device__ __forceinline__ float combine(float a, float b) { return a + b; }
__device__ __forceinline__ float2 combine(float2 a, float2 b) { return {a.x + b.x, a.y + b.y}; }

__device__ __forceinline__ float warp_reduce(float local) {
#pragma unroll
    for (int offset = 16; offset; offset /= 2) local += __shfl_xor_sync(~0u, local, offset);
    return local;
}
__device__ __forceinline__ float2 warp_reduce(float2 local) { return {warp_reduce(local.x), warp_reduce(local.y)}; }

__device__ __forceinline__ float warp_reduce_max(float local) {
#pragma unroll
    for (int offset = 16; offset; offset /= 2) local = fmaxf(local, __shfl_xor_sync(~0u, local, offset));
    return local;
}

// Partials relative to a common reference, that of `first`; for types without one, nothing changes.
template <typename Partial>
__device__ __forceinline__ Partial rebase(Partial partial, Partial) {
    return partial;
}

}  // namespace kw
