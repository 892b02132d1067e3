// Softmax and log-softmax of rows that are too long for one block, forward and backward.
//
// Idea: a thread takes exponentials relative to its own maximum and keeps them in registers; once the row's maximum and
// sum are known, one factor turns them into results. Each element costs one exponential and one load.
// Macros in addition to shared_row.cuh: LOG_SOFTMAX; HAS_SCALE, scale is not 1.

#include "shared_row.cuh"

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
softmax_forward(const void* x, void* y, unsigned inner_size, long long stride_outer, long long stride_inner,
                float scale) {
    kw::griddepcontrol_wait();
    __shared__ ClusterReduceSmem<kw::MaxSum> board;
    const ThreadSlice slice;
    const unsigned row = blockIdx.x / CLUSTER_SIZE;
    float values[kEach][kLanes];
    load_slice(values, x, row_offset(row, inner_size, stride_outer, stride_inner), slice, -kw::infinity());
    kw::cluster_reduce_init(board);
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kLanes; ++j)
            if (HAS_SCALE && slice.contains(i)) values[i][j] *= scale;
    const float local_max = thread_max(values), shift = kw::finite_shift(local_max);
    float thread_sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kLanes; ++j) {
            const float exp_x = kw::fast_exp(values[i][j] - shift);
            thread_sum += exp_x;
            if (!LOG_SOFTMAX) values[i][j] = exp_x;
        }
    const kw::MaxSum row_stats = kw::cluster_reduce(board, 0, kw::MaxSum{local_max, thread_sum});
    const float factor = kw::fast_exp(local_max - row_stats.x) * kw::rcp_approx(row_stats.y), log_sum = logf(row_stats.y);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kLanes; ++j)
            values[i][j] = LOG_SOFTMAX ? (values[i][j] - row_stats.x) - log_sum : values[i][j] * factor;
        store_vec(y, row_offset(row), slice, i, values[i]);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
softmax_backward(const void* dy, const void* y, void* dx, unsigned inner_size, long long stride_outer,
                 long long stride_inner, float scale) {
    kw::griddepcontrol_wait();
    __shared__ ClusterReduceSmem<float> board;
    const ThreadSlice slice;
    const unsigned row = blockIdx.x / CLUSTER_SIZE;
    float grads[kEach][kLanes], values[kEach][kLanes];
    load_slice(grads, dy, row_offset(row, inner_size, stride_outer, stride_inner), slice, 0.0f);
    load_slice(values, y, row_offset(row), slice, 0.0f);
    kw::cluster_reduce_init(board);
    float thread_sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kLanes; ++j) thread_sum += LOG_SOFTMAX ? grads[i][j] : grads[i][j] * values[i][j];
    const float row_sum = kw::cluster_reduce(board, 0, thread_sum);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kLanes; ++j) {
            const float grad = grads[i][j], value = values[i][j];
            grads[i][j] = scale * (LOG_SOFTMAX ? grad - kw::fast_exp(value) * row_sum : value * (grad - row_sum));
        }
        store_vec(dx, row_offset(row), slice, i, grads[i]);
    }
}
