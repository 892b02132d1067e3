// Cross-entropy of rows that are too long for one block: the loss, or that and its gradient, which overwrites them.
//
// Idea: as softmaxes/long_rows.cu; the block that has the target's logit tells it with its sums, before anybody writes.
// Formula and names as kernel.py, for classes that all weigh the same and logits without a cap.
// Macros besides: SMOOTHED; APART, the gradient by the target's logit is written there and not over the logit.

#include "shared_row.cuh"

// A target: which class, or none; whether its row counts.
struct Target {
    int place;
    bool counted;

    __device__ Target(long long target, long long ignore_index)
        : place(target >= 0 && target < COLUMNS ? static_cast<int>(target) : -1), counted(target != ignore_index) {}

    __device__ bool valid() const { return place >= 0; }
};

// Around the target's logit, which is hardly ever a mask, the others are added up for smoothing.
__device__ __forceinline__ float pivot_of(float logit) { return fabsf(logit) < 65536.0f ? logit : 0.0f; }

// That, for a thread that has not the logit to tell.
__device__ __forceinline__ float pivot_of(const void* x, long long begin, const Target& target) {
    return SMOOTHED && target.valid() ? pivot_of(element(x, begin + target.place)) : 0.0f;
}

// `values` become e^(value - own largest one); what this thread tells of its row.
__device__ __forceinline__ PowersAndSums told(float (&values)[kEach][kLanes], const Share& share, float logit,
                                              float pivot) {
    const float own = largest(values), base = base_of(own);
    float sum = 0.0f, weighed = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kLanes; ++j) {
            if (SMOOTHED && share.has(i)) weighed += values[i][j] - pivot;
            sum += values[i][j] = power_of_e(values[i][j] - base);
        }
    return PowersAndSums{own, sum, logit, weighed};
}

__device__ __forceinline__ float loss_of(const PowersAndSums& all, const Target& target, float smoothing, float z) {
    const float log_total = logf(all.y), lse = all.x + log_total;
    float loss = (1.0f - smoothing) * ((all.x - all.z) + log_total) + z * lse * lse;
    if (SMOOTHED) loss += smoothing * ((all.x - pivot_of(all.z)) + log_total - all.w / COLUMNS);
    return target.counted ? (target.valid() ? loss : not_a_number()) : 0.0f;
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
cross_entropy_forward(const void* x, const long long* targets, float* losses, float* lse, unsigned inner,
                      long long outer_stride, long long inner_stride, long long ignore_index, float smoothing, float z,
                      unsigned M) {
    kw::griddepcontrol_wait();
    __shared__ Board<PowersAndSums> board;
    const Share share;
    const unsigned row = blockIdx.x / PARTS;
    const long long begin = begin_of(row, inner, outer_stride, inner_stride);
    const bool tells = blockIdx.x % PARTS == 0 && threadIdx.x == 0;
    const Target target(targets[row], ignore_index);
    float values[kEach][kLanes];
    load(values, x, begin, share, -infinity());
    prepare(board);
    const float logit = tells && target.valid() ? element(x, begin + target.place) : 0.0f;
    const PowersAndSums all = of_row(board, 0, told(values, share, logit, pivot_of(x, begin, target)));
    if (!tells) return;
    losses[row] = loss_of(all, target, smoothing, z);
    if (lse != nullptr) lse[row] = all.x, lse[M + row] = logf(all.y);
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
cross_entropy_gradient(void* x, const long long* targets, const float* scale, float* losses, float* apart,
                       unsigned inner, long long outer_stride, long long inner_stride, long long ignore_index,
                       float smoothing, float z) {
    kw::griddepcontrol_wait();
    __shared__ Board<PowersAndSums> board;
    const Share share;
    const unsigned row = blockIdx.x / PARTS;
    const long long begin = begin_of(row, inner, outer_stride, inner_stride);
    const Target target(targets[row], ignore_index);
    float values[kEach][kLanes];
    load(values, x, begin, share, -infinity());
    prepare(board);
    const bool has = threadIdx.x == 0 && target.valid() && target.place / (kPart * kLanes) == blockIdx.x % PARTS;
    const float logit = has ? element(x, begin + target.place) : 0.0f;
    const PowersAndSums own = told(values, share, logit, pivot_of(x, begin, target)), all = of_row(board, 0, own);
    if (blockIdx.x % PARTS == 0 && threadIdx.x == 0) losses[row] = loss_of(all, target, smoothing, z);
    const float slope = target.counted ? (target.valid() ? *scale : not_a_number()) : 0.0f;
    const float by_lse = 1.0f + 2.0f * z * (all.x + logf(all.y));
    const float factor = slope * by_lse * power_of_e(own.x - all.x) * one_over(all.y);
    const float shared = slope * (smoothing / COLUMNS), kept = 1.0f - smoothing;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kLanes; ++j)
            values[i][j] = values[i][j] * factor - (SMOOTHED ? shared : 0.0f);
        const int after = target.place - share.column(i);
        if (share.has(i) && after >= 0 && after < kLanes)
#pragma unroll
            for (int j = 0; j < kLanes; ++j)
                if (j == after) {
                    values[i][j] -= slope * kept;
                    if (APART) apart[row] = values[i][j], values[i][j] = 0.0f;
                }
        store(x, begin, share, i, values[i]);
    }
}
