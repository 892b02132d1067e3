// A row that a cluster of blocks shares: every thread keeps its vectors from the one read to the one write.
//
// Macros: COLUMNS of a row; PARTS, the blocks of a cluster; WARPS of each; ELEMENT (0 bfloat16, 1 float16, 2 float);
// AT_ONCE, how many threads of a multiprocessor have registers.
#pragma once

#include "kw/cluster.cuh"
#include "kw/griddepcontrol.cuh"

constexpr int kThreads = 32 * WARPS;
constexpr int kLanes = ELEMENT == 2 ? 4 : 8;  // elements of 16 bytes
constexpr int kVectors = COLUMNS / kLanes;
constexpr int kPart = (kVectors + PARTS - 1) / PARTS;
constexpr int kLeast = kVectors - (PARTS - 1) * kPart;  // of a block: the last one's
constexpr int kEach = (kPart + kThreads - 1) / kThreads;
constexpr int kBlocks = AT_ONCE / kThreads > 1 ? AT_ONCE / kThreads : 1;  // of a multiprocessor, at least

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }
__device__ __forceinline__ float not_a_number() { return __int_as_float(0x7fffffff); }

// Which elements are this thread's: vectors `first + i * kThreads` of the row while `i * kThreads < left`.
struct Share {
    int first = blockIdx.x % PARTS * kPart + threadIdx.x;
    int left = min(kPart, kVectors - static_cast<int>(blockIdx.x % PARTS) * kPart) - static_cast<int>(threadIdx.x);

    __device__ bool has(int i) const { return (i + 1) * kThreads <= kLeast || i * kThreads < left; }
    __device__ int column(int i) const { return (first + i * kThreads) * kLanes; }
};

// The rows of this cluster, `each` of M.
struct Rows {
    unsigned begin, end;

    __device__ Rows(unsigned M, unsigned each) : begin(blockIdx.x / PARTS * each), end(min(M, begin + each)) {}
};

// Where a row begins in a tensor of such rows one after another.
__device__ __forceinline__ long long begin_of(unsigned row) { return static_cast<long long>(row) * COLUMNS; }

// Where it begins in a tensor whose leading dimensions are two, the inner one of that size.
__device__ __forceinline__ long long begin_of(unsigned row, unsigned inner, long long outer_stride,
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

__device__ __forceinline__ void widen(float* values, uint4 vector) {
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

// One element.
__device__ __forceinline__ float element(const void* tensor, long long at) {
    if (ELEMENT == 2) return reinterpret_cast<const float*>(tensor)[at];
    return widened(reinterpret_cast<const unsigned short*>(tensor)[at]).x;
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

constexpr float kLog2e = 1.4426950408889634f;

__device__ __forceinline__ float power_of_e(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * kLog2e));
    return power;
}

__device__ __forceinline__ float one_over(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
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

// What comes into shared memory while something else is worked on, such as what all rows have in common: registers have
// no room for it. Each thread reads what it has fetched itself, after a wait of `kw::cp_async_wait_group`.
constexpr int kAlong = kEach * kThreads;

__device__ __forceinline__ void fetch(uint4* shared, const void* tensor, long long begin, const Share& share) {
    const uint4* row = reinterpret_cast<const uint4*>(tensor) + begin / kLanes + share.first;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
        if (share.has(i)) kw::cp_async_cg_16(&shared[i * kThreads + threadIdx.x], row + i * kThreads);
}

// That of what all rows have in common: it stays in the L1 for the next block, or every block of the machine would want
// the same few lines of the L2.
__device__ __forceinline__ void fetch_common(uint4* shared, const void* tensor, const Share& share) {
    const uint4* row = reinterpret_cast<const uint4*>(tensor) + share.first;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
        if (share.has(i))
            asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(
                             kw::smem_u32(&shared[i * kThreads + threadIdx.x])),
                         "l"(row + i * kThreads)
                         : "memory");
}

// What threads of a row tell each other, two of them merged and those of a warp: one sum or two; the largest element and
// the sum of e^(element - largest); these and two sums; how many elements, their mean above a base, the sum of squares
// around it, and the base, which is a warp's own.
struct Powers : float2 {};
struct PowersAndSums : float4 {};
struct Moments : float4 {};

__device__ __forceinline__ void nothing(float& none) { none = 0.0f; }
__device__ __forceinline__ void nothing(float2& none) { none = {0.0f, 0.0f}; }
__device__ __forceinline__ void nothing(Powers& none) { none = {-infinity(), 0.0f}; }
__device__ __forceinline__ void nothing(PowersAndSums& none) { none = {-infinity(), 0.0f, 0.0f, 0.0f}; }
__device__ __forceinline__ void nothing(Moments& none) { none = {0.0f, 0.0f, 0.0f, 0.0f}; }

__device__ __forceinline__ float merged(float a, float b) { return a + b; }
__device__ __forceinline__ float2 merged(float2 a, float2 b) { return {a.x + b.x, a.y + b.y}; }
__device__ __forceinline__ Powers merged(Powers a, Powers b) {
    const float top = fmaxf(a.x, b.x), base = base_of(top);
    return {top, a.y * power_of_e(a.x - base) + b.y * power_of_e(b.x - base)};
}
__device__ __forceinline__ PowersAndSums merged(PowersAndSums a, PowersAndSums b) {
    const Powers powers = merged(Powers{a.x, a.y}, Powers{b.x, b.y});
    return {powers.x, powers.y, a.z + b.z, a.w + b.w};
}
// The same to the last bit whichever comes first: both lanes of a pair go on with it.
__device__ __forceinline__ Moments merged(Moments a, Moments b) {
    const float many = a.x + b.x, share = many > 0.0f ? one_over(many) : 0.0f, apart = a.y - b.y;
    const float mean = 0.5f * (a.y + b.y) + 0.5f * apart * ((a.x - b.x) * share);
    return {many, mean, a.z + b.z + apart * apart * (a.x * b.x * share), a.w};
}

// The same above what is a base of all: the mean of one of them, which is never as far off as an element may be.
template <typename Found>
__device__ __forceinline__ Found based(Found found, Found) {
    return found;
}
template <>
__device__ __forceinline__ Moments based(Moments found, Moments first) {
    const float base = first.w + first.y;
    return {found.x, found.x > 0.0f ? (found.w - base) + found.y : 0.0f, found.z, base};
}

__device__ __forceinline__ float of_warp(float own) {
#pragma unroll
    for (int far = 16; far; far /= 2) own += __shfl_xor_sync(~0u, own, far);
    return own;
}
__device__ __forceinline__ float2 of_warp(float2 own) { return {of_warp(own.x), of_warp(own.y)}; }
__device__ __forceinline__ Powers of_warp(Powers own) {
    float top = own.x;
#pragma unroll
    for (int far = 16; far; far /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, far));
    return {top, of_warp(own.y * power_of_e(own.x - base_of(top)))};
}
__device__ __forceinline__ PowersAndSums of_warp(PowersAndSums own) {
    const Powers powers = of_warp(Powers{own.x, own.y});
    return {powers.x, powers.y, of_warp(own.z), of_warp(own.w)};
}
__device__ __forceinline__ Moments of_warp(Moments own) {
#pragma unroll
    for (int far = 16; far; far /= 2) {
        const float many = __shfl_xor_sync(~0u, own.x, far), mean = __shfl_xor_sync(~0u, own.y, far);
        own = merged(own, Moments{many, mean, __shfl_xor_sync(~0u, own.z, far), own.w});
    }
    return own;
}

// One of a warp's first elements that is hardly ever an outlier: the middle one of three of its first lane's.
__device__ __forceinline__ float middle_of_warp(const float (&values)[kEach][kLanes]) {
    const float a = values[0][0], b = values[0][1], c = values[0][kLanes - 1];
    return __shfl_sync(~0u, fmaxf(fminf(a, b), fminf(fmaxf(a, b), c)), 0);
}

__device__ __forceinline__ Moments moments_of(const float (&values)[kEach][kLanes], const Share& share) {
    const float base = ELEMENT == 2 ? middle_of_warp(values) : 0.0f;  // so few numbers of 16 bits add up exactly
    float many = 0.0f, sum = 0.0f, square = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        if (share.has(i)) many += kLanes;
#pragma unroll
        for (int j = 0; j < kLanes; ++j) sum += share.has(i) ? values[i][j] - base : 0.0f;
    }
    const float mean = many > 0.0f ? sum / many : 0.0f, centre = base + mean;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kLanes; ++j)
            if (share.has(i)) square += (values[i][j] - centre) * (values[i][j] - centre);
    if (ELEMENT == 2) return Moments{many, mean, square, base};
    const float first = __shfl_sync(~0u, mean, 0), rest = many > 0.0f ? fmaf(-mean, many, sum) / many : 0.0f;
    return Moments{many, (mean - first) + rest, square, first};
}

template <typename Found>
struct Board {
    Found found[2][PARTS * WARPS];
    unsigned long long barriers[2];
};

// All threads, once, with their loads under way: makes ready for `of_row`.
template <typename Found>
__device__ __forceinline__ void prepare(Board<Found>& board) {
    if (threadIdx.x == 0)
        for (auto& barrier : board.barriers) kw::mbarrier_init(&barrier);
    kw::barrier_cluster_arrive_init();
}

// What all threads of a row found, merged in an order that is always the same; `turn` counts a cluster's calls. A block
// that is a turn ahead writes beside what is still read; two turns ahead it cannot be, since it waits for everybody.
template <typename Found>
__device__ __forceinline__ Found of_row(Board<Found>& board, unsigned turn, Found own) {
    const unsigned lane = threadIdx.x % 32, writer = blockIdx.x % PARTS * WARPS + threadIdx.x / 32;
    Found* const found = board.found[turn % 2];
    unsigned long long* const barrier = &board.barriers[turn % 2];
    own = of_warp(own);
    if (turn == 0) kw::barrier_cluster_wait();
    if (threadIdx.x == 0) kw::mbarrier_arrive_expect_tx(barrier, PARTS * WARPS * sizeof(Found));
    if (lane < PARTS) kw::st_async(kw::mapa(&found[writer], lane), own, kw::mapa(barrier, lane));
    kw::mbarrier_wait_parity(barrier, turn / 2 % 2);
    nothing(own);
    own = based(own, found[0]);
#pragma unroll
    for (int i = 0; i < PARTS * WARPS; i += 32)
        if (i + lane < PARTS * WARPS) {
            const Found other = based(found[i + lane], found[0]);
            own = i ? merged(own, other) : other;
        }
    return of_warp(own);
}
