// Part of gemm_sm90.cu: what follows the sums of a tile, and its stores.
#pragma once

#include "gemm_params.cuh"
#include "kw/ptx/ldmatrix.cuh"

// Columns that are finished and stored together: those of a tile of a TMA store.
constexpr int kChunk = kSwapped ? (kOutN < 64 ? kOutN : 64) : kStoreColumns < kOutN ? kStoreColumns : kOutN;

// The code of a costly epilogue, unrolled over a tile, is larger than the instruction cache, from which it evicts the main
// loop of other warps: there a loop finishes one chunk after the other, and the accumulators move to the first ones'
// registers. Without TMA, or if chunks are not a whole part of the tile, the loops are unrolled.
constexpr bool kRolled = ROLLED_EPILOGUE && kOutN % kChunk == 0;

// Factor of a row or a column of a batch; anything outside.
__device__ __forceinline__ float scale_at(const float* scales, int index, int size, int batch) {
    if constexpr (kScalarScales) return __ldg(scales);
    return kHasScales && index < size ? __ldg(scales + index + static_cast<long long>(batch) * size) : 1.0f;
}

__device__ __forceinline__ float bias_at(const GemmParams& p, int index, int size) {
    return kHasBias && index < size ? kw::to_float(p.bias[index]) : 0.0f;
}

// The output's value for a scaled sum plus bias; rows and columns outside of the output read nothing.
__device__ __forceinline__ float finish(const GemmParams& p, float value, int row, int column, int batch) {
    if (kHasResidual && row < p.M && column < p.N)
        value += p.beta * kw::to_float(p.residual[row * p.residual_strides[0] + column * p.residual_strides[1] +
                                                  batch * p.residual_strides[2]]);
    return Activation::apply(value);
}

// The factors of a tile's columns, on their way from global to shared memory: loaded before the main loop, stored after.
struct ColumnLoader {
    static constexpr int kPerThread = (kOutN + 127) / 128;
    float bias[kPerThread], scale[kPerThread];

    __device__ __forceinline__ void load(const GemmParams& p, int column, int batch) {
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) {
            const int at = column + i * 128 + threadIdx.x % 128;
            bias[i] = bias_at(p, at, p.N);
            if constexpr (ColumnFactors::kHasColumnScales) scale[i] = scale_at(p.column_scale, at, p.N, batch);
        }
    }
    __device__ __forceinline__ void store(ColumnFactors& to, int consumer) const {
        kw::bar_sync(1 + consumer, 128);
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) {
            const int at = i * 128 + threadIdx.x % 128;
            if (kHasBias && at < kOutN) to.bias[at] = bias[i];
            if (ColumnFactors::kHasColumnScales && at < kOutN) to.scale[at] = scale[i];
        }
        kw::bar_sync(1 + consumer, 128);
    }
};

__device__ __forceinline__ void store(const GemmParams& p, float value, int row, int column, int batch) {
    if (row < p.M && column < p.N)
        p.out[row * p.out_strides[0] + column * p.out_strides[1] + batch * p.out_strides[2]] = kw::from_float<Out>(value);
}

// Scales of a thread's rows, loaded before the main loop, which hides the latency.
struct RowScales {
    static constexpr bool kIsUsed = kHasScales && !kBlockScales && !kSplitInLoop && kSplitK == 1 && !kRolled;
    float of[kIsUsed ? kFragments : 1][2];

    __device__ __forceinline__ void load(const GemmParams& p, int first_row, int batch) {
        if constexpr (kIsUsed) {
#pragma unroll
            for (int f = 0; f < kFragments; ++f)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    of[f][half] = scale_at(p.row_scale, first_row + 64 * f + thread_row() + 8 * half, p.M, batch);
        }
    }
};

// What a thread finishes: two rows of a fragment, eight apart.
struct ThreadRows {
    int row, batch;  // the first one
    float scales[2], bias[2], column_scale;

    __device__ __forceinline__ ThreadRows(const GemmParams& p, int first_row, int batch, const float* early_scales)
        : row(first_row + thread_row()), batch(batch), column_scale(kScalarScales ? __ldg(p.column_scale) : 1.0f) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            scales[half] = kBlockScales || kSplitInLoop ? 1.0f : RowScales::kIsUsed ? early_scales[half]
                                                               : scale_at(p.row_scale, row + 8 * half, p.M, batch);
            bias[half] = kSwapped ? bias_at(p, row + 8 * half, p.M) : 0.0f;
        }
    }
};

#define kMinusInfinity __int_as_float(0xff800000)

// Statistics of a thread's two rows in a tile: a sum of squares, or the maximum and the sum of exp(x - maximum).
struct TileStatistics {
    float sums[2] = {}, largest[2] = {kMinusInfinity, kMinusInfinity};

    __device__ __forceinline__ void add(float value, int half, bool is_inside) {
        if constexpr (kRowStatistics == RowStatistics::kSquareSum) {
            const float inside = is_inside ? value : 0.0f;
            sums[half] = fmaf(inside, inside, sums[half]);
        } else {
            merge(half, is_inside ? value : kMinusInfinity, 1.0f);
        }
    }
    // Without branches, since wgmma needs converged warps.
    __device__ __forceinline__ void merge(int half, float other_largest, float other_sum) {
        const float together = fmaxf(largest[half], other_largest), shift = isinf(together) ? 0.0f : together;
        sums[half] = sums[half] * __expf(largest[half] - shift) + other_sum * __expf(other_largest - shift);
        largest[half] = together;
    }
    // Combines the four threads of a row and stores the result.
    __device__ __forceinline__ void store(const GemmParams& p, const ThreadRows& rows, int column) {
        constexpr int kValues = kRowStatistics == RowStatistics::kMaxExpSum ? 2 : 1;
        const int parts = (p.N + kOutN - 1) / kOutN;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int step = 1; step < 4; step *= 2) {
                const float sum = __shfl_xor_sync(0xffffffffu, sums[half], step);
                if constexpr (kValues == 2) {
                    merge(half, __shfl_xor_sync(0xffffffffu, largest[half], step), sum);
                } else {
                    sums[half] += sum;
                }
            }
            const int row = rows.row + 8 * half;
            const long long to = (static_cast<long long>(rows.batch) * p.M + row) * parts + column / kOutN;
            if (threadIdx.x % 4 == 0 && row < p.M) {
                if constexpr (kValues == 2) {
                    reinterpret_cast<float2*>(p.row_statistics)[to] = make_float2(largest[half], sums[half]);
                } else {
                    p.row_statistics[to] = sums[half];
                }
            }
        }
    }
};

// Replaces the sums of kCount columns, which begin at column `at` of the tile, by values of the output.
template <int kCount>
__device__ __forceinline__ void finish_columns(const GemmParams& p, const ColumnFactors& factors, float* d, int at,
                                             const ThreadRows& rows, int column, TileStatistics& statistics) {
    const int lane_column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
        const int half = i % 4 / 2, in_tile = at + i / 4 * 8 + lane_column + i % 2;
        if constexpr (kGated) {
            const float gate = p.alpha * d[i], up = p.alpha * d[i + kBlockN / 4];
            d[i] = kw::Silu::apply(gate) * up;
        } else {
            float value = d[i], bias = rows.bias[half];
            if constexpr (kHasScales) {  // one after the other: their product alone could vanish
                value *= rows.scales[half];
                value *= kScalarScales ? rows.column_scale
                         : kSwapped    ? scale_at(p.column_scale, column + in_tile, p.N, rows.batch)
                                       : factors.scale[in_tile];
            }
            if constexpr (kHasBias && !kSwapped) bias = factors.bias[in_tile];
            d[i] = finish(p, fmaf(p.alpha, value, bias), rows.row + 8 * half, column + in_tile, rows.batch);
        }
        if constexpr (kRowStatistics != RowStatistics::kNone) {
            // not written back to d: ptxas would wait for wgmma after every instruction (C7511)
            statistics.add(kw::to_float(kw::from_float<Out>(d[i])), half, column + in_tile < p.N);
        }
    }
}

__device__ __forceinline__ void store_chunk(const GemmParams& p, const float* d, int at, const ThreadRows& rows, int column) {
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i)
        store(p, d[i], rows.row + i % 4 / 2 * 8, column + at + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2, rows.batch);
}

// Writes a chunk to shared memory as TMA stores it, with a 128-byte swizzle; transposed if the rows are contiguous in the
// output.
template <typename T = Out>
__device__ __forceinline__ void stage_chunk(unsigned char* smem, const float* d) {
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    if constexpr (sizeof(T) == 2) {
        const int matrix = lane / 8, r = lane % 8;
#pragma unroll
        for (int j = 0; j < kChunk / 8; j += 2) {
            unsigned bits[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                bits[i] = j + i / 2 < kChunk / 8 ? kw::pack<T>(d[4 * j + 2 * i], d[4 * j + 2 * i + 1]) : 0;
            if constexpr (kSwapped) {
                const int token = (j + matrix / 2) * 8 + r, part = 2 * warp + matrix % 2;
                kw::stmatrix_x4_trans(smem + token * kw::kSwizzleBytes + ((part ^ r) * 16), bits);
            } else {
                const int row = warp * 16 + matrix % 2 * 8 + r;
                kw::stmatrix_x4(smem + row * kw::kSwizzleBytes + (((j + matrix / 2) ^ r) * 16), bits);
            }
        }
    } else {
        const int r = lane / 4;
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int part = 2 * j + lane % 4 / 2;
                *reinterpret_cast<float2*>(smem + (warp * 16 + r + 8 * half) * kw::kSwizzleBytes + ((part ^ r) * 16) +
                                           lane % 2 * 8) = make_float2(d[4 * j + 2 * half], d[4 * j + 2 * half + 1]);
            }
    }
}

// Stores a chunk through TMA, which clips it to the output; the copy overlaps with what follows.
__device__ __forceinline__ void tma_store_chunk(const GemmParams& p, const float* d, unsigned char* buffers, int row, int column,
                                                int batch, int consumer, int& buffer) {
    unsigned char* const smem = buffers + buffer * kStoreBytes;
    buffer ^= 1;
    if (threadIdx.x % 128 == 0) kw::cp_async_bulk_wait_group_read<1>();
    kw::bar_sync(1 + consumer, 128);
    stage_chunk(smem, d);
    kw::fence_proxy_async();
    kw::bar_sync(1 + consumer, 128);
    if (threadIdx.x % 128 == 0) {
        if (row < p.M && column < p.N)
            kw::cp_async_bulk_tensor_3d_store(&p.out_map, smem, kSwapped ? row : column, kSwapped ? column : row, batch);
        kw::cp_async_bulk_commit_group();
    }
}

// Finishes a consumer's part of a tile and stores it.
__device__ __forceinline__ void store_tile(const GemmParams& p, const ColumnFactors& factors, const RowScales& row_scales,
                                           Accumulator& acc, unsigned char* buffers, kw::TileIndex at, int consumer,
                                           int& buffer) {
    float* const all = &acc[0][0];
    const int first_row = at.m + (kPingPong ? 0 : consumer) * kFragments * 64;
    auto store_columns = [&](const float* d, int from, const ThreadRows& rows, int row) {
        if constexpr (kTmaStore) {
            tma_store_chunk(p, d, buffers, row, at.n + from, at.batch, consumer, buffer);
        } else {
            store_chunk(p, d, from, rows, at.n);
        }
    };
    auto move_down = [&](int count) {
#pragma unroll
        for (int i = 0; i + count < kFragments * kBlockN / 2; ++i) all[i] = all[i + count];
    };
    if constexpr (kRolled) {
#pragma unroll 1
        for (int f = 0; f < kFragments; ++f) {
            const ThreadRows rows(p, first_row + f * 64, at.batch, nullptr);
            TileStatistics statistics;
#pragma unroll 1
            for (int from = 0; from < kOutN; from += kChunk) {
                finish_columns<kChunk>(p, factors, all, from, rows, at.n, statistics);
                store_columns(all, from, rows, first_row + f * 64);
                move_down(kChunk / 2);
            }
            if constexpr (kGated) move_down(kBlockN / 4);
            if constexpr (kRowStatistics != RowStatistics::kNone) statistics.store(p, rows, at.n);
        }
    } else {
#pragma unroll
        for (int f = 0; f < kFragments; ++f) {
            const ThreadRows rows(p, first_row + f * 64, at.batch, row_scales.of[RowScales::kIsUsed ? f : 0]);
            TileStatistics statistics;
            finish_columns<kOutN>(p, factors, acc[f], 0, rows, at.n, statistics);
#pragma unroll
            for (int from = 0; from < kOutN; from += kChunk) {
                const int begin = min(from, kOutN - kChunk);  // the last columns may be stored twice
                store_columns(&acc[f][begin / 2], begin, rows, first_row + f * 64);
            }
            if constexpr (kRowStatistics != RowStatistics::kNone) statistics.store(p, rows, at.n);
        }
    }
}

constexpr int kReduceBarrier = 10;

// Adds the cluster's partial sums in the order of K, each block a part of the tile, and stores them.
__device__ __forceinline__ void reduce_and_store(const Block& block, const Accumulator& acc, int consumer, kw::TileIndex at) {
    if constexpr (kNumConsumers > 1) kw::bar_sync(kReduceBarrier, 128 * kNumConsumers);  // others may still read the stages
    float* const sums = reinterpret_cast<float*>(block.stages);
    const int lane = threadIdx.x % 32, first_row = consumer * kFragments * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
        for (int i = 0; i < kBlockN / 2; ++i) {
            const int row = first_row + 64 * f + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
            sums[kSwapped ? column * kReductionPitch + row : row * kReductionPitch + column] = acc[f][i];
        }
    kw::barrier_cluster_arrive();
    kw::barrier_cluster_wait();
    constexpr int kInner = kSwapped ? kBlockM : kBlockN, kOuter = kSwapped ? kBlockN : kBlockM;
    constexpr int kConsumerThreads = 128 * kNumConsumers, kVectors = kInner * kOuter / 4;
    unsigned remote[kSplitK];
#pragma unroll
    for (int part = 0; part < kSplitK; ++part) remote[part] = kw::mapa(sums, part);
    // All loads first: one after the other would wait for the latency of each.
    constexpr int kSteps = (kVectors + kSplitK * kConsumerThreads - 1) / (kSplitK * kConsumerThreads);
    const int first = block.rank * kConsumerThreads + threadIdx.x - 128;
    float4 parts[kSteps][kSplitK];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
        const int i = min(first + step * kSplitK * kConsumerThreads, kVectors - 1);
        const int inner = i * 4 % kInner, outer = i * 4 / kInner;
#pragma unroll
        for (int part = 0; part < kSplitK; ++part)
            parts[step][part] = kw::ld_shared_cluster_v4(remote[part] + 4 * (outer * kReductionPitch + inner));
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
        const int i = first + step * kSplitK * kConsumerThreads, inner = i * 4 % kInner, outer = i * 4 / kInner;
        if (i >= kVectors) continue;
        float sum[4] = {};
#pragma unroll
        for (int part = 0; part < kSplitK; ++part) {
            sum[0] += parts[step][part].x;
            sum[1] += parts[step][part].y;
            sum[2] += parts[step][part].z;
            sum[3] += parts[step][part].w;
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int row = at.m + (kSwapped ? inner + j : outer), column = at.n + (kSwapped ? outer : inner + j);
            const float row_scale = kSplitInLoop ? 1.0f : scale_at(block.p.row_scale, row, block.p.M, at.batch);
            const float value = sum[j] * row_scale *
                                scale_at(block.p.column_scale, column, block.p.N, at.batch);
            const float bias = kSwapped ? bias_at(block.p, row, block.p.M) : bias_at(block.p, column, block.p.N);
            store(block.p, finish(block.p, fmaf(block.p.alpha, value, bias), row, column, at.batch), row, column, at.batch);
        }
    }
    kw::barrier_cluster_arrive();
    kw::barrier_cluster_wait();
}
