// A row that a cluster of blocks shares: every thread keeps its vectors in registers from the one read to the one write.
//
// Macros: COLUMNS of a row; PARTS, the blocks of a cluster; WARPS of each; ELEMENT (0 bfloat16, 1 float16, 2 float);
// ROUNDS, how often the threads of a row hear of each other; AT_ONCE, how many threads of a multiprocessor have registers.
#pragma once

#include "kw/cluster.cuh"

constexpr int kThreads = 32 * WARPS;
constexpr int kLanes = ELEMENT == 2 ? 4 : 8;  // elements of 16 bytes
constexpr int kVectors = COLUMNS / kLanes;
constexpr int kPart = (kVectors + PARTS - 1) / PARTS;
constexpr int kEach = (kPart + kThreads - 1) / kThreads;
constexpr int kBlocks = AT_ONCE / kThreads > 1 ? AT_ONCE / kThreads : 1;  // of a multiprocessor, at least

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }
__device__ __forceinline__ float not_a_number() { return __int_as_float(0x7fffffff); }

// Which elements are this thread's: vectors `first + i * kThreads` of the row while `i * kThreads < left`.
struct Share {
    int first = blockIdx.x % PARTS * kPart + threadIdx.x;
    int left = min(kPart, kVectors - static_cast<int>(blockIdx.x % PARTS) * kPart) - static_cast<int>(threadIdx.x);

    __device__ bool has(int i) const { return i * kThreads < left; }
    __device__ int column(int i) const { return (first + i * kThreads) * kLanes; }
};

__device__ __forceinline__ long long row_here() { return blockIdx.x / PARTS; }

// Where a row begins in a tensor whose leading dimensions are two, the inner one of that size.
__device__ __forceinline__ long long begin_of(long long row, long long inner, long long outer_stride,
                                              long long inner_stride) {
    return row / inner * outer_stride + row % inner * inner_stride;
}

__device__ __forceinline__ float2 widened(unsigned two) {
    if (ELEMENT == 0) return {__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u)};
    float2 wide;
    asm("{.reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
        : "=f"(wide.x), "=f"(wide.y)
        : "r"(two));
    return wide;
}

__device__ __forceinline__ unsigned narrowed(float low, float high) {
    unsigned two;
    if (ELEMENT == 0)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}

__device__ __forceinline__ void widen(float (&values)[kLanes], uint4 vector) {
    const unsigned words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (ELEMENT == 2) {
            values[i] = __uint_as_float(words[i]);
        } else {
            const float2 two = widened(words[i]);
            values[2 * i] = two.x, values[2 * i + 1] = two.y;
        }
    }
}

__device__ __forceinline__ uint4 narrow(const float (&values)[kLanes]) {
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        words[i] = ELEMENT == 2 ? __float_as_uint(values[i]) : narrowed(values[2 * i], values[2 * i + 1]);
    return {words[0], words[1], words[2], words[3]};
}

// A number as it is after it has been stored.
__device__ __forceinline__ float rounded(float value) {
    return ELEMENT == 2 ? value : widened(narrowed(value, 0.0f)).x;
}

// Of a row its elements here, all under way at once; `nothing` where there is none.
__device__ __forceinline__ void load(float (&values)[kEach][kLanes], const void* tensor, long long begin,
                                     const Share& share, float nothing) {
    const uint4* row = reinterpret_cast<const uint4*>(tensor) + begin / kLanes + share.first;
    uint4 vectors[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) vectors[i] = share.has(i) ? row[i * kThreads] : uint4{};
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        widen(values[i], vectors[i]);
        if (share.has(i)) continue;
#pragma unroll
        for (int j = 0; j < kLanes; ++j) values[i][j] = nothing;
    }
}

__device__ __forceinline__ void store(void* tensor, long long begin, const Share& share, int i,
                                      const float (&values)[kLanes]) {
    if (share.has(i)) reinterpret_cast<uint4*>(tensor)[begin / kLanes + share.first + i * kThreads] = narrow(values);
}

struct Board {
    float4 found[ROUNDS][PARTS * WARPS];
    unsigned long long barriers[ROUNDS];
};

// All threads, once their loads are under way: makes ready for `of_row`.
__device__ __forceinline__ void prepare(Board& board) {
    if (threadIdx.x == 0)
        for (auto& barrier : board.barriers) kw::barrier_of_bytes(&barrier, PARTS * WARPS * sizeof(float4));
    kw::cluster_arrive();
}

template <typename Merge>
__device__ __forceinline__ float4 of_warp(float4 own, Merge merge) {
#pragma unroll
    for (int far = 16; far; far /= 2) {
        const float4 other = {__shfl_xor_sync(~0u, own.x, far), __shfl_xor_sync(~0u, own.y, far),
                              __shfl_xor_sync(~0u, own.z, far), __shfl_xor_sync(~0u, own.w, far)};
        own = merge(own, other);
    }
    return own;
}

// What all threads of the row found, merged in an order that is always the same; `none` is what merges into nothing.
template <typename Merge>
__device__ __forceinline__ float4 of_row(Board& board, int round, float4 own, float4 none, Merge merge) {
    const unsigned lane = threadIdx.x % 32, writer = blockIdx.x % PARTS * WARPS + threadIdx.x / 32;
    own = of_warp(own, merge);
    if (round == 0) kw::cluster_wait();
    if (lane < PARTS)
        kw::store_async(kw::in_block(&board.found[round][writer], lane), own,
                        kw::in_block(&board.barriers[round], lane));
    kw::barrier_wait(&board.barriers[round]);
    own = none;
#pragma unroll
    for (int i = 0; i < PARTS * WARPS; i += 32)
        if (i + lane < PARTS * WARPS) own = merge(own, board.found[round][i + lane]);
    return of_warp(own, merge);
}

constexpr float kLog2e = 1.4426950408889634f;

__device__ __forceinline__ float power_of_e(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * kLog2e));
    return power;
}

__device__ __forceinline__ float base_of(float top) { return top == -infinity() ? 0.0f : top; }

__device__ __forceinline__ float largest(const float (&values)[kEach][kLanes]) {
    float top = -infinity();
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kLanes; ++j) top = fmaxf(top, values[i][j]);
    return top;
}

// In x the largest element, in y the sum of e^(element - largest); the others are sums.
__device__ __forceinline__ float4 merged_powers(float4 a, float4 b) {
    const float top = fmaxf(a.x, b.x), base = base_of(top);
    return {top, a.y * power_of_e(a.x - base) + b.y * power_of_e(b.x - base), a.z + b.z, a.w + b.w};
}

__device__ __forceinline__ float4 added(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
