// Partial results of a softmax: the maximum, and sums relative to it. The sums of threads are rescaled once for each warp.
// Source: Milakov & Gimelshein 2018, arXiv:1805.02867.
#pragma once

#include "kw/ptx/approx.cuh"
#include "kw/reduce/warp.cuh"

namespace kw {

struct MaxSum : float2 {};       // x: maximum; y: sum of e^(element - maximum)
struct MaxSumExtra : float4 {};  // x, y: as MaxSum; z, w: two sums

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }
__device__ __forceinline__ float finite_shift(float max_value) { return max_value == -infinity() ? 0.0f : max_value; }

__device__ __forceinline__ void identity(MaxSum& none) { none = {-infinity(), 0.0f}; }
__device__ __forceinline__ void identity(MaxSumExtra& none) { none = {-infinity(), 0.0f, 0.0f, 0.0f}; }

__device__ __forceinline__ MaxSum combine(MaxSum a, MaxSum b) {
    const float max_value = fmaxf(a.x, b.x), shift = finite_shift(max_value);
    return {max_value, a.y * fast_exp(a.x - shift) + b.y * fast_exp(b.x - shift)};
}
__device__ __forceinline__ MaxSumExtra combine(MaxSumExtra a, MaxSumExtra b) {
    const MaxSum max_sum = combine(MaxSum{a.x, a.y}, MaxSum{b.x, b.y});
    return {max_sum.x, max_sum.y, a.z + b.z, a.w + b.w};
}

__device__ __forceinline__ MaxSum warp_reduce(MaxSum local) {
    const float max_value = warp_reduce_max(local.x);
    return {max_value, warp_reduce(local.y * fast_exp(local.x - finite_shift(max_value)))};
}
__device__ __forceinline__ MaxSumExtra warp_reduce(MaxSumExtra local) {
    const MaxSum max_sum = warp_reduce(MaxSum{local.x, local.y});
    return {max_sum.x, max_sum.y, warp_reduce(local.z), warp_reduce(local.w)};
}

}  // namespace kw
