// Splits FP32 matrices into two FP16 terms, x * scale = high + low * 2^-11, with a power of two for each row (or column)
// that makes its largest element 2^14 to 2^15. What FP16 cannot hold that way (infinity, NaN, a largest element beyond
// 2^60 or below 2^-60) has a scale of NaN and zeros as terms. An element has an absolute error of 2^-50 of the largest.
// Bound: memory, 4 bytes read twice (the second time from L2 or L1) and 4 written for each element.
// Source: Ootomo & Yokota 2022, arXiv:2203.03341.
#include "kw/ptx/cvt.cuh"

constexpr int kThreads = 256, kColumnThreads = 128, kColumnChunk = 64;

struct Scale {
    float scale, inverse;
    // From the bits of the largest magnitude.
    __device__ explicit Scale(unsigned largest) {
        const unsigned exponent = largest == 0 ? 141 : largest >> 23;
        const bool in_range = exponent > 67 && exponent < 187;
        scale = in_range ? __uint_as_float((268 - exponent) << 23) : 0.0f;
        inverse = __uint_as_float(in_range ? (exponent - 14) << 23 : 0x7fffffffu);
    }
};

__device__ __forceinline__ unsigned magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }

__device__ __forceinline__ void split(float x, float scale, kw::f16& high, kw::f16& low) {
    const float scaled = scale == 0.0f ? 0.0f : x * scale;  // infinity times zero would be NaN
    high = kw::from_float<kw::f16>(scaled);
    low = kw::from_float<kw::f16>((scaled - kw::to_float(high)) * 2048.0f);
}

__device__ __forceinline__ void split_x4(float4 x, float scale, uint2& high, uint2& low) {
    kw::f16 h[4], l[4];
    split(x.x, scale, h[0], l[0]);
    split(x.y, scale, h[1], l[1]);
    split(x.z, scale, h[2], l[2]);
    split(x.w, scale, h[3], l[3]);
    high = make_uint2(h[0].bits | h[1].bits << 16, h[2].bits | h[3].bits << 16);
    low = make_uint2(l[0].bits | l[1].bits << 16, l[2].bits | l[3].bits << 16);
}

// Rows that are contiguous along K: a block for each row of a batch. The terms are (batch, rows, pitch); the pitch is a
// multiple of 8, and what is beyond K is not written, since TMA does not read it.
extern "C" __global__ void __launch_bounds__(kThreads)
split_rows(const float* x, kw::f16* high, kw::f16* low, float* inverse, long long row_stride, long long batch_stride, int rows,
           int k, int pitch) {
    const long long row = blockIdx.x;
    x += row / rows * batch_stride + row % rows * row_stride;
    high += row * pitch;
    low += row * pitch;
    const bool is_aligned = reinterpret_cast<unsigned long long>(x) % 16 == 0;
    const int vectors = is_aligned ? k / 4 : 0;
    unsigned largest = 0;
    for (int i = threadIdx.x; i < vectors; i += kThreads) {
        const float4 v = reinterpret_cast<const float4*>(x)[i];
        largest = max(largest, max(max(magnitude(v.x), magnitude(v.y)), max(magnitude(v.z), magnitude(v.w))));
    }
    for (int i = 4 * vectors + threadIdx.x; i < k; i += kThreads) largest = max(largest, magnitude(x[i]));
    __shared__ unsigned warp_largest[kThreads / 32];
    largest = __reduce_max_sync(0xffffffffu, largest);
    if (threadIdx.x % 32 == 0) warp_largest[threadIdx.x / 32] = largest;
    __syncthreads();
    for (int warp = 0; warp < kThreads / 32; ++warp) largest = max(largest, warp_largest[warp]);
    const Scale scale(largest);
    if (threadIdx.x == 0) inverse[row] = scale.inverse;
    for (int i = threadIdx.x; i < vectors; i += kThreads)
        split_x4(reinterpret_cast<const float4*>(x)[i], scale.scale, reinterpret_cast<uint2*>(high)[i],
                 reinterpret_cast<uint2*>(low)[i]);
    for (int i = 4 * vectors + threadIdx.x; i < k; i += kThreads) split(x[i], scale.scale, high[i], low[i]);
}

// Columns of a matrix whose rows, along K, are contiguous: the largest magnitude of each; `largest` starts as zeros.
extern "C" __global__ void __launch_bounds__(kColumnThreads)
find_column_largest(const float* x, unsigned* largest, long long k_stride, long long batch_stride, int columns, int k) {
    const int column = blockIdx.x * kColumnThreads + threadIdx.x, begin = blockIdx.y * kColumnChunk;
    if (column >= columns) return;
    x += blockIdx.z * batch_stride + column;
    unsigned found = 0;
    const int end = min(k, begin + kColumnChunk);
#pragma unroll 8
    for (int i = begin; i < end; ++i) found = max(found, magnitude(x[i * k_stride]));
    atomicMax(&largest[static_cast<long long>(blockIdx.z) * columns + column], found);
}

// The same columns split; the terms are (batch, K, pitch).
extern "C" __global__ void __launch_bounds__(kColumnThreads)
split_columns(const float* x, const unsigned* largest, kw::f16* high, kw::f16* low, float* inverse, long long k_stride,
              long long batch_stride, int columns, int k, int pitch) {
    const int column = blockIdx.x * kColumnThreads + threadIdx.x, begin = blockIdx.y * kColumnChunk;
    if (column >= columns) return;
    const long long at = static_cast<long long>(blockIdx.z) * columns + column;
    const Scale scale(largest[at]);
    if (begin == 0) inverse[at] = scale.inverse;
    x += blockIdx.z * batch_stride + column;
    const long long first = (static_cast<long long>(blockIdx.z) * k + begin) * pitch + column;
    const int end = min(k, begin + kColumnChunk);
#pragma unroll 8
    for (int i = begin; i < end; ++i)
        split(x[i * k_stride], scale.scale, high[first + static_cast<long long>(i - begin) * pitch],
              low[first + static_cast<long long>(i - begin) * pitch]);
}
