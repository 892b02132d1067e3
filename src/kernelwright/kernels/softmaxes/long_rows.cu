// Softmax and log-softmax of rows that are too long for one block, forward and backward.
//
// Idea: a thread's exponentials are taken below its own largest element and stay in registers; once the row's largest
// element and sum are known, one factor makes results of them. So each element costs one exponential and one read.
// Macros besides: LOG, the logarithm; SCALED, whether scale is not 1.

#include "shared_row.cuh"

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
softmax_forward(const void* x, void* y, unsigned inner, long long outer_stride, long long inner_stride, float scale) {
    kw::griddepcontrol_wait();
    __shared__ Board<Powers> board;
    const Share share;
    const unsigned row = blockIdx.x / PARTS;
    float values[kEach][kLanes];
    load(values, x, begin_of(row, inner, outer_stride, inner_stride), share, -infinity());
    prepare(board);
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kLanes; ++j)
            if (SCALED && share.has(i)) values[i][j] *= scale;
    const float own = largest(values), base = base_of(own);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kLanes; ++j) {
            const float power = power_of_e(values[i][j] - base);
            sum += power;
            if (!LOG) values[i][j] = power;
        }
    const Powers all = of_row(board, 0, Powers{own, sum});
    const float factor = power_of_e(own - all.x) * one_over(all.y), log_sum = logf(all.y);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kLanes; ++j)
            values[i][j] = LOG ? (values[i][j] - all.x) - log_sum : values[i][j] * factor;
        store(y, begin_of(row), share, i, values[i]);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
softmax_backward(const void* dy, const void* y, void* dx, unsigned inner, long long outer_stride,
                 long long inner_stride, float scale) {
    kw::griddepcontrol_wait();
    __shared__ Board<float> board;
    const Share share;
    const unsigned row = blockIdx.x / PARTS;
    float slopes[kEach][kLanes], values[kEach][kLanes];
    load(slopes, dy, begin_of(row, inner, outer_stride, inner_stride), share, 0.0f);
    load(values, y, begin_of(row), share, 0.0f);
    prepare(board);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kLanes; ++j) sum += LOG ? slopes[i][j] : slopes[i][j] * values[i][j];
    const float total = of_row(board, 0, sum);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kLanes; ++j) {
            const float slope = slopes[i][j], value = values[i][j];
            slopes[i][j] = scale * (LOG ? slope - power_of_e(value) * total : value * (slope - total));
        }
        store(dx, begin_of(row), share, i, slopes[i]);
    }
}
