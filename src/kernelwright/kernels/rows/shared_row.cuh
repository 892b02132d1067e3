// Device helpers for rows that a cluster of blocks processes: each thread keeps its vectors in registers from the one
// load to the one store.
//
// Macros: COLUMNS of a row; CLUSTER_SIZE blocks per cluster; NUM_WARPS per block; DTYPE (0 bfloat16, 1 float16, 2
// float); MAX_THREADS_PER_SM for which registers must suffice. PTX contains the names of the constants and of the
// __shared__ variables of the kernels: renaming one supersedes all recorded evidence of the kernels.
#pragma once

#include "kw/ptx/cp_async.cuh"
#include "kw/ptx/cvt.cuh"
#include "kw/ptx/griddepcontrol.cuh"

#if DTYPE == 0
using Half = kw::bf16;
#else
using Half = kw::f16;  // unused if elements are float
#endif

constexpr int kThreads = 32 * NUM_WARPS;
constexpr int kLanes = DTYPE == 2 ? 4 : 8;                           // elements per 16-byte vector
constexpr int kVectors = COLUMNS / kLanes;                           // per row
constexpr int kPart = (kVectors + CLUSTER_SIZE - 1) / CLUSTER_SIZE;  // vectors per block
constexpr int kLeast = kVectors - (CLUSTER_SIZE - 1) * kPart;        // vectors of the last block
constexpr int kEach = (kPart + kThreads - 1) / kThreads;             // vectors per thread
constexpr int kBlocks = MAX_THREADS_PER_SM / kThreads > 1 ? MAX_THREADS_PER_SM / kThreads : 1;  // minimum per SM

// After the constants: PTX lists them, and that of an included header, in this order.
#include "kw/reduce/cluster.cuh"
#include "kw/reduce/max_sum.cuh"
#include "kw/reduce/moments.cuh"

__device__ __forceinline__ float quiet_nan() { return __int_as_float(0x7fffffff); }

// This thread's elements: vectors `first_vec + i * kThreads` of the row while `i * kThreads < vecs_left`.
struct ThreadSlice {
    int first_vec = blockIdx.x % CLUSTER_SIZE * kPart + threadIdx.x;
    int vecs_left =
        min(kPart, kVectors - static_cast<int>(blockIdx.x % CLUSTER_SIZE) * kPart) - static_cast<int>(threadIdx.x);

    __device__ bool contains(int i) const { return (i + 1) * kThreads <= kLeast || i * kThreads < vecs_left; }
    __device__ int column(int i) const { return (first_vec + i * kThreads) * kLanes; }
};

// The rows of this cluster: `rows_per_cluster` of M.
struct RowRange {
    unsigned begin, end;

    __device__ RowRange(unsigned M, unsigned rows_per_cluster)
        : begin(blockIdx.x / CLUSTER_SIZE * rows_per_cluster), end(min(M, begin + rows_per_cluster)) {}
};

// Element offset of a row in a contiguous tensor.
__device__ __forceinline__ long long row_offset(unsigned row) { return static_cast<long long>(row) * COLUMNS; }

// Element offset of a row in a tensor with two leading dimensions.
__device__ __forceinline__ long long row_offset(unsigned row, unsigned inner_size, long long stride_outer,
                                                long long stride_inner) {
    return row / inner_size * stride_outer + row % inner_size * stride_inner;
}

__device__ __forceinline__ void unpack(float* values, uint4 vector) {
    const unsigned words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (DTYPE == 2) {
            values[i] = __uint_as_float(words[i]);
        } else {
            const float2 two = kw::unpack<Half>(words[i]);
            values[2 * i] = two.x, values[2 * i + 1] = two.y;
        }
    }
}

__device__ __forceinline__ uint4 pack(const float (&values)[kLanes]) {
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        words[i] = DTYPE == 2 ? __float_as_uint(values[i]) : kw::pack<Half>(values[2 * i], values[2 * i + 1]);
    return {words[0], words[1], words[2], words[3]};
}

// A value rounded to the element type.
__device__ __forceinline__ float round_to_dtype(float value) {
    return DTYPE == 2 ? value : kw::unpack<Half>(kw::pack<Half>(value, 0.0f)).x;
}

__device__ __forceinline__ float load_element(const void* tensor, long long offs) {
    if (DTYPE == 2) return reinterpret_cast<const float*>(tensor)[offs];
    return kw::unpack<Half>(reinterpret_cast<const unsigned short*>(tensor)[offs]).x;
}

// Loads this thread's elements of a row, all loads in flight together; `fill` past the end.
__device__ __forceinline__ void load_slice(float (&values)[kEach][kLanes], const void* tensor, long long begin,
                                           const ThreadSlice& slice, float fill) {
    const uint4* row = reinterpret_cast<const uint4*>(tensor) + begin / kLanes + slice.first_vec;
    uint4 vectors[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) vectors[i] = slice.contains(i) ? row[i * kThreads] : uint4{};
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        unpack(values[i], vectors[i]);
        if (slice.contains(i)) continue;
#pragma unroll
        for (int j = 0; j < kLanes; ++j) values[i][j] = fill;
    }
}

__device__ __forceinline__ void store_vec(void* tensor, long long begin, const ThreadSlice& slice, int i,
                                          const float (&values)[kLanes]) {
    if (slice.contains(i))
        reinterpret_cast<uint4*>(tensor)[begin / kLanes + slice.first_vec + i * kThreads] = pack(values);
}

__device__ __forceinline__ float thread_max(const float (&values)[kEach][kLanes]) {
    float max_value = -kw::infinity();
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kLanes; ++j) max_value = fmaxf(max_value, values[i][j]);
    return max_value;
}

// Data prefetched into shared memory, such as weights, for which there are no registers. Each thread reads only what it
// copied itself, after `kw::cp_async_wait_group`.
constexpr int kAlong = kEach * kThreads;

__device__ __forceinline__ void cp_async_slice(uint4* smem, const void* tensor, long long begin,
                                               const ThreadSlice& slice) {
    const uint4* row = reinterpret_cast<const uint4*>(tensor) + begin / kLanes + slice.first_vec;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
        if (slice.contains(i)) kw::cp_async_cg_16(&smem[i * kThreads + threadIdx.x], row + i * kThreads);
}

// The same for row vectors (weight, bias), through L1, where they stay for the next block; otherwise all SMs would
// contend for the same few lines of L2.
__device__ __forceinline__ void cp_async_slice_cached(uint4* smem, const void* tensor, const ThreadSlice& slice) {
    const uint4* row = reinterpret_cast<const uint4*>(tensor) + slice.first_vec;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
        if (slice.contains(i))
            asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(
                             kw::smem_u32(&smem[i * kThreads + threadIdx.x])),
                         "l"(row + i * kThreads)
                         : "memory");
}

// Median of three elements of the warp's first lane: a shift that is hardly ever an outlier.
__device__ __forceinline__ float warp_median3(const float (&values)[kEach][kLanes]) {
    const float a = values[0][0], b = values[0][1], c = values[0][kLanes - 1];
    return __shfl_sync(~0u, fmaxf(fminf(a, b), fminf(fmaxf(a, b), c)), 0);
}

__device__ __forceinline__ kw::Moments thread_moments(const float (&values)[kEach][kLanes], const ThreadSlice& slice) {
    const float shift = DTYPE == 2 ? warp_median3(values) : 0.0f;  // so few 16-bit values sum exactly without a shift
    float count = 0.0f, sum = 0.0f, m2 = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        if (slice.contains(i)) count += kLanes;
#pragma unroll
        for (int j = 0; j < kLanes; ++j) sum += slice.contains(i) ? values[i][j] - shift : 0.0f;
    }
    const float mean = count > 0.0f ? sum / count : 0.0f, center = shift + mean;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kLanes; ++j)
            if (slice.contains(i)) m2 += (values[i][j] - center) * (values[i][j] - center);
    if (DTYPE == 2) return kw::Moments{count, mean, m2, shift};
    const float warp_mean = __shfl_sync(~0u, mean, 0);
    const float mean_error = count > 0.0f ? fmaf(-mean, count, sum) / count : 0.0f;
    return kw::Moments{count, (mean - warp_mean) + mean_error, m2, warp_mean};
}

// Partial results of the blocks of a row, as `kw::cluster_reduce` combines them.
template <typename Partial>
using ClusterReduceSmem = kw::ClusterReduceSmem<Partial, CLUSTER_SIZE, NUM_WARPS>;
