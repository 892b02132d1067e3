// Cross-entropy of rows that are too long for one block, whose gradient overwrites them: one read and one write.
//
// Idea: as softmaxes/long_rows.cu; the block that has the target's logit tells it with its sums, before anybody writes.
// Formula and names as kernel.py, for classes that all weigh the same and logits without a cap.
// Macros besides: SMOOTHED; APART, the gradient by the target's logit is written there and not over the logit.

#include "shared_row.cuh"

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
cross_entropy_gradient(void* x, const long long* targets, const float* scale, float* losses, float* apart,
                       unsigned inner, long long outer_stride, long long inner_stride, long long ignore_index,
                       float smoothing, float z) {
    __shared__ Board<PowersAndSums> board;
    const Share share;
    const unsigned row = blockIdx.x / PARTS;
    const long long begin = begin_of(row, inner, outer_stride, inner_stride);
    const long long target = targets[row];
    const bool counted = target != ignore_index, valid = target >= 0 && target < COLUMNS;
    const int wanted = valid ? static_cast<int>(target) : -1;
    float values[kEach][kLanes];
    load(values, x, begin, share, -infinity());
    prepare(board);
    float logit = 0.0f, weighed = 0.0f, sum = 0.0f;
    if (threadIdx.x == 0 && valid && target / (kPart * kLanes) == blockIdx.x % PARTS)
        logit = element(x, begin + target);
    const float own = largest(values), base = base_of(own);
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kLanes; ++j) {
            if (SMOOTHED && share.has(i)) weighed += values[i][j];
            sum += values[i][j] = power_of_e(values[i][j] - base);
        }
    const PowersAndSums all = of_row(board, 0, PowersAndSums{own, sum, logit, weighed});
    const float lse = all.x + logf(all.y), kept = 1.0f - smoothing;
    if (blockIdx.x % PARTS == 0 && threadIdx.x == 0) {
        float loss = kept * (lse - all.z) + z * lse * lse;
        if (SMOOTHED) loss += smoothing * (lse - all.w / COLUMNS);
        losses[row] = counted ? (valid ? loss : not_a_number()) : 0.0f;
    }
    const float slope = counted ? (valid ? *scale : not_a_number()) : 0.0f;
    const float factor = slope * (1.0f + 2.0f * z * lse) * power_of_e(own - all.x) * one_over(all.y);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kLanes; ++j)
            values[i][j] = values[i][j] * factor - (SMOOTHED ? slope * (smoothing / COLUMNS) : 0.0f);
        const int after = wanted - share.column(i);
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
