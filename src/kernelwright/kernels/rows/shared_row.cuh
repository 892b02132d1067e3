// Device helpers for rows that a cluster of blocks processes: each thread keeps its vectors in registers from the one
// load to the one store.
//
// Macros: COLUMNS of a row; CLUSTER_SIZE blocks per cluster; NUM_WARPS per block; DTYPE (0 bfloat16, 1 float16, 2
// float); MAX_THREADS_PER_SM for which registers must suffice. PTX contains the names of the constants and of the
// __shared__ variables of the kernels: renaming one supersedes all recorded evidence of the kernels.
#pragma once

#include "kw/ptx/cluster.cuh"
#include "kw/ptx/cp_async.cuh"
#include "kw/ptx/griddepcontrol.cuh"

constexpr int kThreads = 32 * NUM_WARPS;
constexpr int kLanes = DTYPE == 2 ? 4 : 8;                           // elements per 16-byte vector
constexpr int kVectors = COLUMNS / kLanes;                           // per row
constexpr int kPart = (kVectors + CLUSTER_SIZE - 1) / CLUSTER_SIZE;  // vectors per block
constexpr int kLeast = kVectors - (CLUSTER_SIZE - 1) * kPart;        // vectors of the last block
constexpr int kEach = (kPart + kThreads - 1) / kThreads;             // vectors per thread
constexpr int kBlocks = MAX_THREADS_PER_SM / kThreads > 1 ? MAX_THREADS_PER_SM / kThreads : 1;  // minimum per SM

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }
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

__device__ __forceinline__ float2 unpack_x2(unsigned two) {
    if (DTYPE == 0) return {__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u)};
    float2 wide;
    asm("{.reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
        : "=f"(wide.x), "=f"(wide.y)
        : "r"(two));
    return wide;
}

__device__ __forceinline__ unsigned pack_x2(float low, float high) {
    unsigned two;
    if (DTYPE == 0)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}

__device__ __forceinline__ void unpack(float* values, uint4 vector) {
    const unsigned words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (DTYPE == 2) {
            values[i] = __uint_as_float(words[i]);
        } else {
            const float2 two = unpack_x2(words[i]);
            values[2 * i] = two.x, values[2 * i + 1] = two.y;
        }
    }
}

__device__ __forceinline__ uint4 pack(const float (&values)[kLanes]) {
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        words[i] = DTYPE == 2 ? __float_as_uint(values[i]) : pack_x2(values[2 * i], values[2 * i + 1]);
    return {words[0], words[1], words[2], words[3]};
}

// A value rounded to the element type.
__device__ __forceinline__ float round_to_dtype(float value) {
    return DTYPE == 2 ? value : unpack_x2(pack_x2(value, 0.0f)).x;
}

__device__ __forceinline__ float load_element(const void* tensor, long long offs) {
    if (DTYPE == 2) return reinterpret_cast<const float*>(tensor)[offs];
    return unpack_x2(reinterpret_cast<const unsigned short*>(tensor)[offs]).x;
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

constexpr float kLog2e = 1.4426950408889634f;

__device__ __forceinline__ float fast_exp(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * kLog2e));
    return result;
}

__device__ __forceinline__ float rcp_approx(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

__device__ __forceinline__ float finite_shift(float max_value) { return max_value == -infinity() ? 0.0f : max_value; }

__device__ __forceinline__ float thread_max(const float (&values)[kEach][kLanes]) {
    float max_value = -infinity();
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

// Partial results of a row with their identity, the combination of two, and the reduction over a warp. float and float2
// are plain sums.
struct MaxSum : float2 {};       // x: maximum; y: sum of e^(element - maximum)
struct MaxSumExtra : float4 {};  // x, y: as MaxSum; z, w: two sums
struct Moments : float4 {};      // x: count; y: mean - shift; z: sum of squares around the mean; w: shift, one per warp

__device__ __forceinline__ void identity(float& none) { none = 0.0f; }
__device__ __forceinline__ void identity(float2& none) { none = {0.0f, 0.0f}; }
__device__ __forceinline__ void identity(MaxSum& none) { none = {-infinity(), 0.0f}; }
__device__ __forceinline__ void identity(MaxSumExtra& none) { none = {-infinity(), 0.0f, 0.0f, 0.0f}; }
__device__ __forceinline__ void identity(Moments& none) { none = {0.0f, 0.0f, 0.0f, 0.0f}; }

__device__ __forceinline__ float combine(float a, float b) { return a + b; }
__device__ __forceinline__ float2 combine(float2 a, float2 b) { return {a.x + b.x, a.y + b.y}; }
__device__ __forceinline__ MaxSum combine(MaxSum a, MaxSum b) {
    const float max_value = fmaxf(a.x, b.x), shift = finite_shift(max_value);
    return {max_value, a.y * fast_exp(a.x - shift) + b.y * fast_exp(b.x - shift)};
}
__device__ __forceinline__ MaxSumExtra combine(MaxSumExtra a, MaxSumExtra b) {
    const MaxSum max_sum = combine(MaxSum{a.x, a.y}, MaxSum{b.x, b.y});
    return {max_sum.x, max_sum.y, a.z + b.z, a.w + b.w};
}
// Bitwise symmetric in a and b: both lanes of a shuffle pair compute it and must agree.
__device__ __forceinline__ Moments combine(Moments a, Moments b) {
    const float count = a.x + b.x, rcp_count = count > 0.0f ? rcp_approx(count) : 0.0f, delta = a.y - b.y;
    const float mean = 0.5f * (a.y + b.y) + 0.5f * delta * ((a.x - b.x) * rcp_count);
    return {count, mean, a.z + b.z + delta * delta * (a.x * b.x * rcp_count), a.w};
}

// Moments relative to a common shift: the mean of the first warp, which cannot be an outlier as a single element can.
template <typename Partial>
__device__ __forceinline__ Partial rebase(Partial partial, Partial) {
    return partial;
}
template <>
__device__ __forceinline__ Moments rebase(Moments partial, Moments first) {
    const float shift = first.w + first.y;
    return {partial.x, partial.x > 0.0f ? (partial.w - shift) + partial.y : 0.0f, partial.z, shift};
}

__device__ __forceinline__ float warp_reduce(float local) {
#pragma unroll
    for (int offset = 16; offset; offset /= 2) local += __shfl_xor_sync(~0u, local, offset);
    return local;
}
__device__ __forceinline__ float2 warp_reduce(float2 local) { return {warp_reduce(local.x), warp_reduce(local.y)}; }
__device__ __forceinline__ MaxSum warp_reduce(MaxSum local) {
    float max_value = local.x;
#pragma unroll
    for (int offset = 16; offset; offset /= 2) max_value = fmaxf(max_value, __shfl_xor_sync(~0u, max_value, offset));
    return {max_value, warp_reduce(local.y * fast_exp(local.x - finite_shift(max_value)))};
}
__device__ __forceinline__ MaxSumExtra warp_reduce(MaxSumExtra local) {
    const MaxSum max_sum = warp_reduce(MaxSum{local.x, local.y});
    return {max_sum.x, max_sum.y, warp_reduce(local.z), warp_reduce(local.w)};
}
__device__ __forceinline__ Moments warp_reduce(Moments local) {
#pragma unroll
    for (int offset = 16; offset; offset /= 2) {
        const float count = __shfl_xor_sync(~0u, local.x, offset), mean = __shfl_xor_sync(~0u, local.y, offset);
        local = combine(local, Moments{count, mean, __shfl_xor_sync(~0u, local.z, offset), local.w});
    }
    return local;
}

// Median of three elements of the warp's first lane: a shift that is hardly ever an outlier.
__device__ __forceinline__ float warp_median3(const float (&values)[kEach][kLanes]) {
    const float a = values[0][0], b = values[0][1], c = values[0][kLanes - 1];
    return __shfl_sync(~0u, fmaxf(fminf(a, b), fminf(fmaxf(a, b), c)), 0);
}

__device__ __forceinline__ Moments thread_moments(const float (&values)[kEach][kLanes], const ThreadSlice& slice) {
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
    if (DTYPE == 2) return Moments{count, mean, m2, shift};
    const float warp_mean = __shfl_sync(~0u, mean, 0);
    const float mean_error = count > 0.0f ? fmaf(-mean, count, sum) / count : 0.0f;
    return Moments{count, (mean - warp_mean) + mean_error, m2, warp_mean};
}

template <typename Partial>
struct ClusterReduceSmem {
    Partial partials[2][CLUSTER_SIZE * NUM_WARPS];
    unsigned long long mbarriers[2];
};

// Initializes the mbarriers; called once by all threads, with their loads in flight.
template <typename Partial>
__device__ __forceinline__ void cluster_reduce_init(ClusterReduceSmem<Partial>& smem) {
    if (threadIdx.x == 0)
        for (auto& mbarrier : smem.mbarriers) kw::mbarrier_init(&mbarrier);
    kw::barrier_cluster_arrive_init();
}

// Combines the partials of all threads of a row, in a fixed order; `round` counts the calls of a cluster. Two buffers
// suffice: a block one round ahead writes the other buffer, and it cannot be two rounds ahead, since each round waits
// for all blocks.
template <typename Partial>
__device__ __forceinline__ Partial cluster_reduce(ClusterReduceSmem<Partial>& smem, unsigned round, Partial local) {
    const unsigned lane = threadIdx.x % 32, writer = blockIdx.x % CLUSTER_SIZE * NUM_WARPS + threadIdx.x / 32;
    Partial* const partials = smem.partials[round % 2];
    unsigned long long* const mbarrier = &smem.mbarriers[round % 2];
    local = warp_reduce(local);
    if (round == 0) kw::barrier_cluster_wait();
    if (threadIdx.x == 0) kw::mbarrier_arrive_expect_tx(mbarrier, CLUSTER_SIZE * NUM_WARPS * sizeof(Partial));
    if (lane < CLUSTER_SIZE)
        kw::st_async(kw::mapa(&partials[writer], lane), local, kw::mapa(mbarrier, lane));
    kw::mbarrier_wait_parity(mbarrier, round / 2 % 2);
    identity(local);
    local = rebase(local, partials[0]);
#pragma unroll
    for (int i = 0; i < CLUSTER_SIZE * NUM_WARPS; i += 32)
        if (i + lane < CLUSTER_SIZE * NUM_WARPS) {
            const Partial other = rebase(partials[i + lane], partials[0]);
            local = i ? combine(local, other) : other;
        }
    return warp_reduce(local);
}
