// Cross-entropy of rows that are too long for one block, whose gradient overwrites them: one read and one write.
//
// Idea: as softmaxes/long_rows.cu; the logit of the target travels with the row's sums, and nobody writes before all
// have read. Formula and names as kernel.py, for classes that all weigh the same and logits without a cap.
// Macros besides: SMOOTHED.

#define ROUNDS 1
#include "shared_row.cuh"

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
cross_entropy_gradient(void* x, const long long* targets, const float* scale, float* losses, long long inner,
                       long long outer_stride, long long inner_stride, long long ignore_index, float smoothing,
                       float z) {
    __shared__ Board board;
    const Share share;
    const long long row = row_here(), begin = begin_of(row, inner, outer_stride, inner_stride);
    const long long target = targets[row];
    const bool counted = target != ignore_index, valid = target >= 0 && target < COLUMNS;
    float values[kEach][kLanes];
    load(values, x, begin, share, -infinity());
    prepare(board);
    float logit = 0.0f, weighed = 0.0f, sum = 0.0f;
    const float own = largest(values), base = base_of(own);
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kLanes; ++j) {
            const float value = values[i][j];
            if (valid && share.has(i) && share.column(i) + j == target) logit = value;
            if (SMOOTHED && share.has(i)) weighed += value;
            sum += values[i][j] = power_of_e(value - base);
        }
    const float4 all = of_row(board, 0, {own, sum, logit, weighed}, {-infinity()}, merged_powers);
    const float lse = all.x + logf(all.y), kept = 1.0f - smoothing;
    if (blockIdx.x % PARTS == 0 && threadIdx.x == 0) {
        float loss = kept * (lse - all.z) + z * lse * lse;
        if (SMOOTHED) loss += smoothing * (lse - all.w / COLUMNS);
        losses[row] = counted ? (valid ? loss : not_a_number()) : 0.0f;
    }
    const float slope = counted ? (valid ? *scale : not_a_number()) : 0.0f;
    const float factor = power_of_e(own - all.x) / all.y, of_powers = (1.0f + 2.0f * z * lse) * factor;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kLanes; ++j) {
            float value = of_powers * values[i][j];
            if (SMOOTHED) value -= smoothing / COLUMNS;
            if (share.column(i) + j == target) value -= kept;
            values[i][j] = slope * value;
        }
        store(x, begin, share, i, values[i]);
    }
}
