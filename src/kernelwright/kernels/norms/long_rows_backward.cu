// Gradients of RMSNorm and LayerNorm (SUBTRACT_MEAN) for rows that are too long for one block, and of weight and bias.
//
// Idea: persistent clusters keep the weight gradient of their rows in registers. The next row is prefetched into shared
// memory; each row is read from there twice, before and after its sums are known: one reduction round per row. The
// partial weight gradients are summed in a fixed order afterwards.
// Macros in addition to shared_row.cuh: CAST_FIRST, as forward; HAS_WEIGHT; HAS_RESIDUAL, there is a gradient of the
// sum x + residual; WANTS_WEIGHT, WANTS_BIAS.

#include "shared_row.cuh"

// Stores this thread's partial gradients in one FP32 row of the workspace.
__device__ __forceinline__ void store_partials(float* row, const ThreadSlice& slice,
                                               const float (&partials)[kEach][kLanes]) {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kLanes; j += 4)
            if (slice.contains(i))
                *reinterpret_cast<float4*>(row + slice.column(i) + j) =
                    float4{partials[i][j], partials[i][j + 1], partials[i][j + 2], partials[i][j + 3]};
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
norm_backward(const void* dy, const void* dresidual, const void* x, const void* weight, const float* mean,
              const float* rstd, void* dx, float* dweight, float* dbias, unsigned dy_inner_size,
              long long stride_dy_outer, long long stride_dy_inner, unsigned x_inner_size, long long stride_x_outer,
              long long stride_x_inner, float weight_offset, unsigned M) {
    kw::griddepcontrol_wait();
    extern __shared__ __align__(16) uint4 along[];
    __shared__ ClusterReduceSmem<float2> board;
    uint4 *const smem_rows = along + HAS_WEIGHT * kAlong, *const smem_dresidual = smem_rows + 4 * kAlong;
    const ThreadSlice slice;
    const unsigned first_row = blockIdx.x / CLUSTER_SIZE, num_clusters = gridDim.x / CLUSTER_SIZE;
    // Prefetches the row of a round; commits a group even if there is no row, so that group counts stay fixed.
    auto cp_async_row = [&](unsigned round) {
        const unsigned row = first_row + round * num_clusters;
        uint4* const stage = smem_rows + round % 2 * 2 * kAlong;
        if (row < M) {
            cp_async_slice(stage, dy, row_offset(row, dy_inner_size, stride_dy_outer, stride_dy_inner), slice);
            cp_async_slice(stage + kAlong, x, row_offset(row, x_inner_size, stride_x_outer, stride_x_inner), slice);
        }
        kw::cp_async_commit_group();
    };
    if (HAS_WEIGHT) cp_async_slice_cached(along, weight, slice);
    cp_async_row(0);
    kw::cluster_reduce_init(board);
    float rstd_row = rstd[first_row], mean_row = SUBTRACT_MEAN ? mean[first_row] : 0.0f;
    float dweight_acc[kEach][kLanes] = {}, dbias_acc[kEach][kLanes] = {};
    for (unsigned row = first_row, round = 0; row < M; row += num_clusters, ++round) {
        const uint4* const stage = smem_rows + round % 2 * 2 * kAlong + threadIdx.x;
        const unsigned next_row = min(row + num_clusters, M - 1);
        const float next_rstd = rstd[next_row], next_mean = SUBTRACT_MEAN ? mean[next_row] : 0.0f;
        if (HAS_RESIDUAL) cp_async_slice(smem_dresidual, dresidual, row_offset(row), slice), kw::cp_async_commit_group();
        cp_async_row(round + 1);
        // Vector i of dy, x - mean, and the weight without its offset.
        auto load_stage = [&](int i, float* dy_vec, float* x_vec, float* weight_vec) {
            unpack(dy_vec, stage[i * kThreads]), unpack(x_vec, stage[kAlong + i * kThreads]);
            if (HAS_WEIGHT) unpack(weight_vec, along[i * kThreads + threadIdx.x]);
#pragma unroll
            for (int j = 0; SUBTRACT_MEAN && j < kLanes; ++j) x_vec[j] -= mean_row;
        };
        float2 row_sums = {};
        kw::cp_async_wait_group<1 + HAS_RESIDUAL>();
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            if (!slice.contains(i)) continue;
            float dy_vec[kLanes], x_vec[kLanes], weight_vec[kLanes];
            load_stage(i, dy_vec, x_vec, weight_vec);
#pragma unroll
            for (int j = 0; j < kLanes; ++j) {
                const float wdy = HAS_WEIGHT ? dy_vec[j] * (weight_vec[j] + weight_offset) : dy_vec[j],
                            x_hat = x_vec[j] * rstd_row;
                row_sums.x += wdy * x_vec[j];
                if (SUBTRACT_MEAN) row_sums.y += wdy;
                if (WANTS_WEIGHT) dweight_acc[i][j] += dy_vec[j] * (CAST_FIRST ? round_to_dtype(x_hat) : x_hat);
                if (WANTS_BIAS) dbias_acc[i][j] += dy_vec[j];
            }
        }
        row_sums = kw::cluster_reduce(board, round, row_sums);
        const float c_xhat = row_sums.x * (1.0f / COLUMNS) * rstd_row * rstd_row * rstd_row,
                    c_mean = row_sums.y * (1.0f / COLUMNS) * rstd_row;
        const float weight_shift = weight_offset * rstd_row;
        if (HAS_RESIDUAL) kw::cp_async_wait_group<1>();
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            if (!slice.contains(i)) continue;
            float dy_vec[kLanes], x_vec[kLanes], weight_vec[kLanes], dresidual_vec[kLanes];
            load_stage(i, dy_vec, x_vec, weight_vec);
            if (HAS_RESIDUAL) unpack(dresidual_vec, smem_dresidual[i * kThreads + threadIdx.x]);
#pragma unroll
            for (int j = 0; j < kLanes; ++j) {
                const float weight_scale = HAS_WEIGHT ? fmaf(weight_vec[j], rstd_row, weight_shift) : rstd_row;
                dy_vec[j] = dy_vec[j] * weight_scale - (x_vec[j] * c_xhat + c_mean);
                if (HAS_RESIDUAL) dy_vec[j] += dresidual_vec[j];
            }
            store_vec(dx, row_offset(row), slice, i, dy_vec);
        }
        rstd_row = next_rstd, mean_row = next_mean;
    }
    if (WANTS_WEIGHT) store_partials(dweight + row_offset(first_row), slice, dweight_acc);
    if (WANTS_BIAS) store_partials(dbias + row_offset(first_row), slice, dbias_acc);
}
