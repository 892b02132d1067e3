// Cross-entropy of rows that are too long for one block: the loss, or the loss and its gradient, which overwrites x.
//
// Idea: as softmaxes/long_rows.cu; the block that holds the target's logit contributes it to the reduction before any
// block overwrites x. Formula and names as kernel.py, without class weights and soft cap.
// Macros in addition to shared_row.cuh: HAS_LABEL_SMOOTHING; SEPARATE_TARGET_GRAD, the gradient of the target's logit
// is stored in `target_grad`, not over the logit.

#include "shared_row.cuh"

// A target: its class index, -1 if out of range, and whether it is not ignore_index.
struct Target {
    int index;
    bool not_ignored;

    __device__ Target(long long target, long long ignore_index)
        : index(target >= 0 && target < COLUMNS ? static_cast<int>(target) : -1), not_ignored(target != ignore_index) {}

    __device__ bool in_range() const { return index >= 0; }
};

// For label smoothing logits are summed relative to the target's, which is hardly ever a mask value.
__device__ __forceinline__ float pivot_for(float logit) { return fabsf(logit) < 65536.0f ? logit : 0.0f; }

// The same for a thread that does not contribute the target's logit.
__device__ __forceinline__ float pivot_for(const void* x, long long row_offs, const Target& target) {
    return HAS_LABEL_SMOOTHING && target.in_range() ? pivot_for(load_element(x, row_offs + target.index)) : 0.0f;
}

// Replaces `values` by e^(value - thread maximum) and returns this thread's partial result.
__device__ __forceinline__ kw::MaxSumExtra local_stats(float (&values)[kEach][kLanes], const ThreadSlice& slice,
                                                   float logit, float pivot) {
    const float local = thread_max(values), shift = kw::finite_shift(local);
    float sum = 0.0f, centered_sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kLanes; ++j) {
            if (HAS_LABEL_SMOOTHING && slice.contains(i)) centered_sum += values[i][j] - pivot;
            sum += values[i][j] = kw::fast_exp(values[i][j] - shift);
        }
    return kw::MaxSumExtra{local, sum, logit, centered_sum};
}

__device__ __forceinline__ float row_loss(const kw::MaxSumExtra& row_stats, const Target& target, float label_smoothing,
                                          float z_loss) {
    const float log_sum = logf(row_stats.y), lse = row_stats.x + log_sum;
    float loss = (1.0f - label_smoothing) * ((row_stats.x - row_stats.z) + log_sum) + z_loss * lse * lse;
    if (HAS_LABEL_SMOOTHING)
        loss += label_smoothing * ((row_stats.x - pivot_for(row_stats.z)) + log_sum - row_stats.w / COLUMNS);
    return target.not_ignored ? (target.in_range() ? loss : quiet_nan()) : 0.0f;
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
cross_entropy_forward(const void* x, const long long* targets, float* losses, float* lse, unsigned inner_size,
                      long long stride_outer, long long stride_inner, long long ignore_index, float label_smoothing,
                      float z_loss, unsigned M) {
    kw::griddepcontrol_wait();
    __shared__ ClusterReduceSmem<kw::MaxSumExtra> board;
    const ThreadSlice slice;
    const unsigned row = blockIdx.x / CLUSTER_SIZE;
    const long long row_offs = row_offset(row, inner_size, stride_outer, stride_inner);
    const bool is_writer = blockIdx.x % CLUSTER_SIZE == 0 && threadIdx.x == 0;
    const Target target(targets[row], ignore_index);
    float values[kEach][kLanes];
    load_slice(values, x, row_offs, slice, -kw::infinity());
    kw::cluster_reduce_init(board);
    const float logit = is_writer && target.in_range() ? load_element(x, row_offs + target.index) : 0.0f;
    const kw::MaxSumExtra row_stats =
        kw::cluster_reduce(board, 0, local_stats(values, slice, logit, pivot_for(x, row_offs, target)));
    if (!is_writer) return;
    losses[row] = row_loss(row_stats, target, label_smoothing, z_loss);
    if (lse != nullptr) lse[row] = row_stats.x, lse[M + row] = logf(row_stats.y);
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
cross_entropy_gradient(void* x, const long long* targets, const float* scale, float* losses, float* target_grad,
                       unsigned inner_size, long long stride_outer, long long stride_inner, long long ignore_index,
                       float label_smoothing, float z_loss) {
    kw::griddepcontrol_wait();
    __shared__ ClusterReduceSmem<kw::MaxSumExtra> board;
    const ThreadSlice slice;
    const unsigned row = blockIdx.x / CLUSTER_SIZE;
    const long long row_offs = row_offset(row, inner_size, stride_outer, stride_inner);
    const Target target(targets[row], ignore_index);
    float values[kEach][kLanes];
    load_slice(values, x, row_offs, slice, -kw::infinity());
    kw::cluster_reduce_init(board);
    const bool owns_target =
        threadIdx.x == 0 && target.in_range() && target.index / (kPart * kLanes) == blockIdx.x % CLUSTER_SIZE;
    const float logit = owns_target ? load_element(x, row_offs + target.index) : 0.0f;
    const kw::MaxSumExtra local = local_stats(values, slice, logit, pivot_for(x, row_offs, target)),
                      row_stats = kw::cluster_reduce(board, 0, local);
    if (blockIdx.x % CLUSTER_SIZE == 0 && threadIdx.x == 0)
        losses[row] = row_loss(row_stats, target, label_smoothing, z_loss);
    const float dloss = target.not_ignored ? (target.in_range() ? *scale : quiet_nan()) : 0.0f;
    const float lse_grad = 1.0f + 2.0f * z_loss * (row_stats.x + logf(row_stats.y));
    const float softmax_scale = dloss * lse_grad * kw::fast_exp(local.x - row_stats.x) * kw::rcp_approx(row_stats.y);
    const float smoothing_grad = dloss * (label_smoothing / COLUMNS), one_minus_smoothing = 1.0f - label_smoothing;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kLanes; ++j)
            values[i][j] = values[i][j] * softmax_scale - (HAS_LABEL_SMOOTHING ? smoothing_grad : 0.0f);
        const int lane_of_target = target.index - slice.column(i);
        if (slice.contains(i) && lane_of_target >= 0 && lane_of_target < kLanes)
#pragma unroll
            for (int j = 0; j < kLanes; ++j)
                if (j == lane_of_target) {
                    values[i][j] -= dloss * one_minus_smoothing;
                    if (SEPARATE_TARGET_GRAD) target_grad[row] = values[i][j], values[i][j] = 0.0f;
                }
        store_vec(x, row_offs, slice, i, values[i]);
    }
}
