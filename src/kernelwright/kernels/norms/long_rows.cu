// RMSNorm and LayerNorm (SUBTRACT_MEAN) of rows that are too long for one block, with an optional residual.
//
// Idea: as kernel.py, with the row in the registers of a cluster. One reduction round yields mean and variance: each
// thread sums squares around its own mean, and the means of a warp and of the row are kept as two floats, one of them
// close to the elements, so that neither an offset nor an outlier costs accuracy.
// A cluster processes several rows, so that the weights are loaded once for all of them.
// Macros in addition to shared_row.cuh: CAST_FIRST, round before multiplying by the weight; HAS_WEIGHT, HAS_BIAS,
// HAS_RESIDUAL, HAS_WEIGHT_OFFSET.

#include "shared_row.cuh"

#if SUBTRACT_MEAN
using RowStats = kw::Moments;
#else
using RowStats = float;
#endif

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
norm_forward(const void* x, const void* residual, const void* weight, const void* bias, void* y, void* residual_out,
             float* mean, float* rstd, unsigned x_inner_size, long long stride_x_outer, long long stride_x_inner,
             unsigned r_inner_size, long long stride_r_outer, long long stride_r_inner, float eps,
             float weight_offset, unsigned M, unsigned rows_per_cluster) {
    kw::griddepcontrol_wait();
    extern __shared__ __align__(16) uint4 along[];
    __shared__ ClusterReduceSmem<RowStats> board;
    const ThreadSlice slice;
    const RowRange rows(M, rows_per_cluster);
    unsigned round = 0;
    for (unsigned row = rows.begin; row < rows.end; ++row) {
        float values[kEach][kLanes];
        const long long row_offs = row_offset(row, x_inner_size, stride_x_outer, stride_x_inner);
        load_slice(values, x, row_offs, slice, 0.0f);
#if HAS_RESIDUAL
        const long long residual_offs = row_offset(row, r_inner_size, stride_r_outer, stride_r_inner);
        float residual_values[kEach][kLanes];
        load_slice(residual_values, residual, residual_offs, slice, 0.0f);
#endif
        if (row == rows.begin) {
            if (HAS_WEIGHT) cp_async_slice_cached(along, weight, slice);
            if (HAS_BIAS) cp_async_slice_cached(along + HAS_WEIGHT * kAlong, bias, slice);
            kw::cp_async_commit_group();
            kw::cluster_reduce_init(board);
        }
#if HAS_RESIDUAL
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
#pragma unroll
            for (int j = 0; j < kLanes; ++j) values[i][j] = round_to_dtype(values[i][j] + residual_values[i][j]);
            store_vec(residual_out, row_offset(row), slice, i, values[i]);
        }
#endif
#if SUBTRACT_MEAN
        const kw::Moments stats = kw::cluster_reduce(board, round++, thread_moments(values, slice));
        const float mean_hi = stats.w + stats.y, mean_lo = (stats.w - mean_hi) + stats.y, sum_sq = stats.z;
#else
        float thread_sum_sq = 0.0f;
#pragma unroll
        for (int i = 0; i < kEach; ++i)
#pragma unroll
            for (int j = 0; j < kLanes; ++j) thread_sum_sq += values[i][j] * values[i][j];
        const float sum_sq = kw::cluster_reduce(board, round++, thread_sum_sq);
#endif
        const float rstd_row = rsqrtf(sum_sq * (1.0f / COLUMNS) + eps);
        if (rstd != nullptr && blockIdx.x % CLUSTER_SIZE == 0 && threadIdx.x == 0) {
            rstd[row] = rstd_row;
#if SUBTRACT_MEAN
            mean[row] = mean_hi;
#endif
        }
        if (row == rows.begin) kw::cp_async_wait_group<0>();
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            float weight_vec[kLanes], bias_vec[kLanes];
            if (HAS_WEIGHT) unpack(weight_vec, along[i * kThreads + threadIdx.x]);
            if (HAS_BIAS) unpack(bias_vec, along[HAS_WEIGHT * kAlong + i * kThreads + threadIdx.x]);
#pragma unroll
            for (int j = 0; j < kLanes; ++j) {
#if SUBTRACT_MEAN
                values[i][j] = fmaf(values[i][j] - mean_hi, rstd_row, -mean_lo * rstd_row);
#else
                values[i][j] *= rstd_row;
#endif
                if (CAST_FIRST) values[i][j] = round_to_dtype(values[i][j]);
                if (HAS_WEIGHT) values[i][j] *= HAS_WEIGHT_OFFSET ? weight_vec[j] + weight_offset : weight_vec[j];
                if (HAS_BIAS) values[i][j] += bias_vec[j];
            }
            store_vec(y, row_offset(row), slice, i, values[i]);
        }
    }
}
