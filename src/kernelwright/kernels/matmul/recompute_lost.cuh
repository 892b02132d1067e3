// Part of gemm_sm90.cu with TERMS 2: what the terms of an FP32 operand cannot hold.
#pragma once

// Rows and columns that two FP16 terms cannot hold (their scale is NaN), again with FP32 FMAs; see split.cu. A few blocks
// read all scales, and end if there is none.
constexpr int kLostTile = 64, kLostK = 16, kLostThreads = 256;

__device__ __forceinline__ bool is_lost(const float* scales, int index, int size, int batch) {
    return index < size && isnan(scales[index + static_cast<long long>(batch) * size]);
}

__device__ __forceinline__ bool any_lost(const float* scales, long long count) {
    bool found = false;
    for (long long i = threadIdx.x; i < count; i += kLostThreads) found |= isnan(scales[i]);
    return __syncthreads_or(found);
}

extern "C" __global__ void __launch_bounds__(kLostThreads)
recompute_lost(const __grid_constant__ GemmParams p) {
    __shared__ float rows[kLostK][kLostTile + 4], columns[kLostK][kLostTile + 4];
    kw::griddepcontrol_wait();
    if (!any_lost(p.row_scale, static_cast<long long>(p.M) * p.batch) &&
        !any_lost(p.column_scale, static_cast<long long>(p.N) * p.batch))
        return;
    const int tiles_m = (p.M + kLostTile - 1) / kLostTile, tiles_n = (p.N + kLostTile - 1) / kLostTile;
    const int thread_row = threadIdx.x / 16 * 4, thread_column = threadIdx.x % 16 * 4;
    for (int tile = blockIdx.x; tile < tiles_m * tiles_n * p.batch; tile += gridDim.x) {
        const int batch = tile / (tiles_m * tiles_n), row = tile % (tiles_m * tiles_n) / tiles_n * kLostTile,
                  column = tile % tiles_n * kLostTile;
        const int at = threadIdx.x % kLostTile;
        if (!__syncthreads_or(is_lost(p.row_scale, row + at, p.M, batch) || is_lost(p.column_scale, column + at, p.N, batch)))
            continue;
        float acc[4][4] = {};
        for (int k = 0; k < p.K; k += kLostK) {
            for (int i = threadIdx.x; i < kLostK * kLostTile; i += kLostThreads) {
                const int inner = i / kLostTile, outer = i % kLostTile;
                const bool has_k = k + inner < p.K;
                rows[inner][outer] = has_k && row + outer < p.M ? p.fp32_a.at(row + outer, k + inner, batch) : 0.0f;
                columns[inner][outer] =
                    has_k && column + outer < p.N ? p.fp32_b.at(column + outer, k + inner, batch) : 0.0f;
            }
            __syncthreads();
            for (int inner = 0; inner < kLostK; ++inner)
                for (int i = 0; i < 4; ++i)
                    for (int j = 0; j < 4; ++j)
                        acc[i][j] = fmaf(rows[inner][thread_row + i], columns[inner][thread_column + j], acc[i][j]);
            __syncthreads();
        }
        for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 4; ++j) {
                const int m = row + thread_row + i, n = column + thread_column + j;
                if (is_lost(p.row_scale, m, p.M, batch) || is_lost(p.column_scale, n, p.N, batch))
                    store(p, finish(p, fmaf(p.alpha, acc[i][j], kSwapped ? bias_at(p, m, p.M) : bias_at(p, n, p.N)), m, n, batch), m,
                          n, batch);
            }
    }
}
