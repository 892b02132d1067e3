// Part of gemm_sm90.cu with SPLIT_IN_LOOP: A is FP32, and a consumer makes FP16 terms of its rows in registers, so that
// each of their bytes is read once: for products that are bound by the bytes of A. B is in two terms, from split.cu.
#pragma once

#include "fp32_terms.cuh"
#include "gemm_mainloop.cuh"

// A thread's part of two rows in a step of 64 along K, as FP16 with a power of two for each row: x = (high + low) * inverse.
struct RegisterTerms {
    unsigned high[kStepsK][4], low[kStepsK][4];  // of the four mma along K
    float inverse[2];

    // Returns which rows FP16 cannot hold, a bit for each.
    __device__ __forceinline__ int load(const unsigned char* panels, int row) {
        const int lane = threadIdx.x % 32;
        float4 x[2][kStepsK];
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int step = 0; step < kStepsK; ++step) {  // a panel has 32 elements of each row, two steps
                const int chunk = lane % 4 * 2 + step % 2;  // without bank conflicts
                x[half][step] = *reinterpret_cast<const float4*>(panels + step / 2 * kBytesA +
                                                                 (row + 8 * half) * kw::kSwizzleBytes + ((chunk ^ (row % 8)) << 4));
            }
        int lost = 0;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            unsigned largest = 0;
#pragma unroll
            for (int step = 0; step < kStepsK; ++step) {
                const float4 v = x[half][step];
                largest = max(largest, max(max(magnitude(v.x), magnitude(v.y)), max(magnitude(v.z), magnitude(v.w))));
            }
            largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
            largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
            const Scale scale(largest);
            const bool is_lost = scale.scale == 0.0f;
            lost |= is_lost << half;
            inverse[half] = is_lost ? 0.0f : scale.inverse;
#pragma unroll
            for (int step = 0; step < kStepsK; ++step) {
                const float4 v = x[half][step];
                split(v.x * scale.scale, v.y * scale.scale, high[step][half], low[step][half]);
                split(v.z * scale.scale, v.w * scale.scale, high[step][half + 2], low[step][half + 2]);
            }
        }
        return lost;
    }
    static __device__ __forceinline__ void split(float x, float y, unsigned& high, unsigned& low) {
        high = kw::pack<kw::f16>(x, y);
        const float2 rounded = kw::unpack<kw::f16>(high);
        low = kw::pack<kw::f16>(x - rounded.x, y - rounded.y);
    }
};

// The small products come first: with the large ones before them, tensor cores would round them away.
__device__ __forceinline__ void multiply_terms(const RegisterTerms& a, const Block& block, int stage, Accumulator& acc) {
    using Wgmma = kw::wgmma_mma_async_registers<kBlockN>;
    const unsigned long long high = MatrixB::descriptor(block.b(stage, 0)), low = MatrixB::descriptor(block.b(stage, 1));
#pragma unroll
    for (int step = 0; step < kStepsK; ++step) {
        Wgmma::issue(acc[0], a.low[step], kw::advance(high, MatrixB::k_offset(step)), step > 0);
        Wgmma::issue(acc[0], a.high[step], kw::advance(low, MatrixB::k_offset(step)), true);
    }
#pragma unroll
    for (int step = 0; step < kStepsK; ++step)
        Wgmma::issue(acc[0], a.high[step], kw::advance(high, MatrixB::k_offset(step)), true);
}

// Sums of a tile's products, in FP32 registers after every step, each with the scale of its row.
__device__ __forceinline__ void split_main_loop(const Block& block, int consumer, int first_row,
                                                kw::PipelineState<kNumStages>& state, Accumulator& total) {
    const int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4, begin = block.first_k_tile(), end = block.end_k_tile();
    int lost = 0;
    set_zero(total);
    for (int k_tile = begin; k_tile < end; ++k_tile, state.advance()) {
        RegisterTerms terms;
        Accumulator partial;
        kw::mbarrier_wait_parity(&block.barriers.full[state.stage], state.parity);
        lost |= terms.load(block.a(state.stage, 0), consumer * 64 + row);
        kw::wgmma_fence();
        multiply_terms(terms, block, state.stage, partial);
        kw::wgmma_commit_group();
        kw::wgmma_wait_group<0>();
        release(block, state.stage);
#pragma unroll
        for (int i = 0; i < kBlockN / 2; ++i) total[0][i] = fmaf(terms.inverse[i % 4 / 2], partial[0][i], total[0][i]);
    }
    // recompute_lost computes these rows.
    float* const scales = const_cast<float*>(block.p.row_scale);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int at = first_row + consumer * 64 + row + 8 * half;
        if (threadIdx.x % 4 == 0 && lost >> half & 1 && at < block.p.M) scales[at] = __uint_as_float(0x7fffffffu);
    }
}
