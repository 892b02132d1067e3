// RMSNorm and LayerNorm (CENTRED) of rows that are too long for one block, with a residual added before.
//
// Idea: as kernel.py, with the row in the registers of a cluster. One turn tells mean and variance: each thread squares
// around its own mean, and each warp's mean, as the row's, is two numbers, of which one is near its elements, so that
// neither an offset nor an outlier costs accuracy.
// A cluster takes several rows one after another, so that the weights come once for all of them.
// Macros besides: CAST_FIRST, round before multiplying by the weight; WEIGHTED, BIASED, ADDED, SHIFTED (by the offset),
// what there is.

#include "shared_row.cuh"

#if CENTRED
using Found = Moments;
#else
using Found = float;
#endif

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
norm_forward(const void* x, const void* residual, const void* weight, const void* bias, void* y, void* sum, float* mean,
             float* rstd, unsigned x_inner, long long x_outer_stride, long long x_inner_stride, unsigned r_inner,
             long long r_outer_stride, long long r_inner_stride, float eps, float offset, unsigned M, unsigned each) {
    kw::griddepcontrol_wait();
    extern __shared__ __align__(16) uint4 along[];
    __shared__ Board<Found> board;
    const Share share;
    const Rows rows(M, each);
    unsigned turn = 0;
    for (unsigned row = rows.begin; row < rows.end; ++row) {
        float values[kEach][kLanes];
        const long long begin = begin_of(row, x_inner, x_outer_stride, x_inner_stride);
        load(values, x, begin, share, 0.0f);
#if ADDED
        const long long r_begin = begin_of(row, r_inner, r_outer_stride, r_inner_stride);
        float others[kEach][kLanes];
        load(others, residual, r_begin, share, 0.0f);
#endif
        if (row == rows.begin) {
            if (WEIGHTED) fetch_common(along, weight, share);
            if (BIASED) fetch_common(along + WEIGHTED * kAlong, bias, share);
            kw::cp_async_commit_group();
            prepare(board);
        }
#if ADDED
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
#pragma unroll
            for (int j = 0; j < kLanes; ++j) values[i][j] = rounded(values[i][j] + others[i][j]);
            store(sum, begin_of(row), share, i, values[i]);
        }
#endif
#if CENTRED
        const Moments all = of_row(board, turn++, moments_of(values, share));
        const float centre = all.w + all.y, rest = (all.w - centre) + all.y, square = all.z;
#else
        float own = 0.0f;
#pragma unroll
        for (int i = 0; i < kEach; ++i)
#pragma unroll
            for (int j = 0; j < kLanes; ++j) own += values[i][j] * values[i][j];
        const float square = of_row(board, turn++, own);
#endif
        const float scale = rsqrtf(square * (1.0f / COLUMNS) + eps);
        if (rstd != nullptr && blockIdx.x % PARTS == 0 && threadIdx.x == 0) {
            rstd[row] = scale;
#if CENTRED
            mean[row] = centre;
#endif
        }
        if (row == rows.begin) kw::cp_async_wait_group<0>();
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            float times[kLanes], plus[kLanes];
            if (WEIGHTED) widen(times, along[i * kThreads + threadIdx.x]);
            if (BIASED) widen(plus, along[WEIGHTED * kAlong + i * kThreads + threadIdx.x]);
#pragma unroll
            for (int j = 0; j < kLanes; ++j) {
#if CENTRED
                values[i][j] = fmaf(values[i][j] - centre, scale, -rest * scale);
#else
                values[i][j] *= scale;
#endif
                if (CAST_FIRST) values[i][j] = rounded(values[i][j]);
                if (WEIGHTED) values[i][j] *= SHIFTED ? times[j] + offset : times[j];
                if (BIASED) values[i][j] += plus[j];
            }
            store(y, begin_of(row), share, i, values[i]);
        }
    }
}
