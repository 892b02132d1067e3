// Gradients of RMSNorm and LayerNorm (CENTRED) by rows that are too long for one block, and by weight and bias.
//
// Idea: clusters stay for their share of all rows, their registers full of the weight's gradient. The next row is on its
// way into shared memory while one is worked on, which is read from there before and after its sums are known: one turn
// a row. The shares of the weight's gradient are added in a fixed order afterwards.
// Macros besides: CAST_FIRST, as forward; WEIGHTED, there is a weight; ADDED, and a gradient of the sum; WANTS_WEIGHT,
// WANTS_BIAS.

#include "shared_row.cuh"

// One thread's shares of a gradient over its rows, as a row of FP32.
__device__ __forceinline__ void store_shares(float* row, const Share& share, const float (&values)[kEach][kLanes]) {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kLanes; j += 4)
            if (share.has(i))
                *reinterpret_cast<float4*>(row + share.column(i) + j) =
                    float4{values[i][j], values[i][j + 1], values[i][j + 2], values[i][j + 3]};
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
norm_backward(const void* dy, const void* dsum, const void* x, const void* weight, const float* mean, const float* rstd,
              void* dx, float* dweight, float* dbias, unsigned dy_inner, long long dy_outer_stride,
              long long dy_inner_stride, unsigned x_inner, long long x_outer_stride, long long x_inner_stride,
              float offset, unsigned M) {
    kw::griddepcontrol_wait();
    extern __shared__ __align__(16) uint4 along[];
    __shared__ Board<float2> board;
    uint4 *const rows = along + WEIGHTED * kAlong, *const added = rows + 4 * kAlong;
    const Share share;
    const unsigned begin = blockIdx.x / PARTS, clusters = gridDim.x / PARTS;
    // The row of some turn of this cluster, a group of copies even if there is none.
    auto fetch_row = [&](unsigned turn) {
        const unsigned row = begin + turn * clusters;
        uint4* const here = rows + turn % 2 * 2 * kAlong;
        if (row < M) {
            fetch(here, dy, begin_of(row, dy_inner, dy_outer_stride, dy_inner_stride), share);
            fetch(here + kAlong, x, begin_of(row, x_inner, x_outer_stride, x_inner_stride), share);
        }
        kw::cp_async_commit_group();
    };
    if (WEIGHTED) fetch_common(along, weight, share);
    fetch_row(0);
    prepare(board);
    float scale = rstd[begin], centre = CENTRED ? mean[begin] : 0.0f;
    float dweights[kEach][kLanes] = {}, dbiases[kEach][kLanes] = {};
    for (unsigned row = begin, turn = 0; row < M; row += clusters, ++turn) {
        const uint4* const here = rows + turn % 2 * 2 * kAlong + threadIdx.x;
        const unsigned next = min(row + clusters, M - 1);
        const float next_scale = rstd[next], next_centre = CENTRED ? mean[next] : 0.0f;
        if (ADDED) fetch(added, dsum, begin_of(row), share), kw::cp_async_commit_group();
        fetch_row(turn + 1);
        // Of vector i dy, x around its mean, and what dy is multiplied by but for the offset.
        auto take = [&](int i, float* slopes, float* values, float* factors) {
            widen(slopes, here[i * kThreads]), widen(values, here[kAlong + i * kThreads]);
            if (WEIGHTED) widen(factors, along[i * kThreads + threadIdx.x]);
#pragma unroll
            for (int j = 0; CENTRED && j < kLanes; ++j) values[j] -= centre;
        };
        float2 sums = {};
        kw::cp_async_wait_group<1 + ADDED>();
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            if (!share.has(i)) continue;
            float slopes[kLanes], values[kLanes], factors[kLanes];
            take(i, slopes, values, factors);
#pragma unroll
            for (int j = 0; j < kLanes; ++j) {
                const float slope = WEIGHTED ? slopes[j] * (factors[j] + offset) : slopes[j], value = values[j] * scale;
                sums.x += slope * values[j];
                if (CENTRED) sums.y += slope;
                if (WANTS_WEIGHT) dweights[i][j] += slopes[j] * (CAST_FIRST ? rounded(value) : value);
                if (WANTS_BIAS) dbiases[i][j] += slopes[j];
            }
        }
        sums = of_row(board, turn, sums);
        const float steep = sums.x * (1.0f / COLUMNS) * scale * scale * scale, level = sums.y * (1.0f / COLUMNS) * scale;
        const float shift = offset * scale;
        if (ADDED) kw::cp_async_wait_group<1>();
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            if (!share.has(i)) continue;
            float slopes[kLanes], values[kLanes], factors[kLanes], more[kLanes];
            take(i, slopes, values, factors);
            if (ADDED) widen(more, added[i * kThreads + threadIdx.x]);
#pragma unroll
            for (int j = 0; j < kLanes; ++j) {
                const float factor = WEIGHTED ? fmaf(factors[j], scale, shift) : scale;
                slopes[j] = slopes[j] * factor - (values[j] * steep + level);
                if (ADDED) slopes[j] += more[j];
            }
            store(dx, begin_of(row), share, i, slopes);
        }
        scale = next_scale, centre = next_centre;
    }
    if (WANTS_WEIGHT) store_shares(dweight + begin_of(begin), share, dweights);
    if (WANTS_BIAS) store_shares(dbias + begin_of(begin), share, dbiases);
}
