// Part of gemm_sm90.cu: the producer, and the sums of a tile.
#pragma once

#include "gemm_params.cuh"
#include "kw/ptx/cp_async_bulk.cuh"
#include "kw/ptx/griddepcontrol.cuh"

// Loads a tile's rows, or the panels of 128 bytes of a transposed one. Of a tile that `kShared` blocks of the cluster need,
// each loads a part for all: some of the rows, or of the steps of K.
template <int kRows, bool kTransposed, int kShared>
__device__ __forceinline__ void load_tile(unsigned char* smem, const kw::TensorMap* map, unsigned long long* full, int row,
                                          int k, int batch, int rank) {
    constexpr int kPart = (kTransposed ? kBlockK : kRows) / kShared;  // lines of 128 bytes
    constexpr int kPanels = kTransposed ? kRows * kElementBytes / kw::kSwizzleBytes : 1;
    static_assert(kPart % 8 == 0 && kPart <= 256 && kPanels > 0 && (!kTransposed || kRows % kBlockK == 0));
    const int part = kShared > 1 ? rank * kPart : 0;
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
        unsigned char* const to = smem + (panel * kBlockK + part) * kw::kSwizzleBytes;
        const int x = kTransposed ? row + panel * kBlockK : k, y = part + (kTransposed ? k : row);
        if constexpr (kShared > 1) {
            kw::cp_async_bulk_tensor_3d_multicast(to, map, full, (1 << kShared) - 1, x, y, batch);
        } else {
            kw::cp_async_bulk_tensor_3d(to, map, full, x, y, batch);
        }
    }
}

// The terms of an operand that is split in the loop are its panels of 128 bytes along K.
__device__ __forceinline__ constexpr int first_in_panel(int term) {
    return kSplitInLoop ? term * static_cast<int>(kw::kSwizzleBytes / sizeof(float)) : 0;
}

// Where the scales of a tile's steps of K are: rows contiguous along M, and one of the columns for each step. They come
// through the pipeline, which is the fastest of three ways (docs/findings/kernels-gemm-block-scales.md).
struct BlockScaleSource {
    const float *rows, *column;
    unsigned rows_bytes, column_bytes;

    __device__ __forceinline__ BlockScaleSource(const GemmParams& p, kw::TileIndex at)
        : rows(p.row_scale + at.batch * p.block_scale_strides[2] + at.m),
          column(p.column_scale + at.batch * p.block_scale_strides[5] + at.n / 128 * p.block_scale_strides[3]),
          rows_bytes(4 * max(0, min(kBlockM, (p.M + 3) / 4 * 4 - at.m))),
          column_bytes(at.n < p.N ? 4 * kColumnSteps : 0) {}
    __device__ __forceinline__ void copy(const GemmParams& p, BlockScales& to, int k_tile, unsigned long long* full) const {
        if (rows_bytes) kw::cp_async_bulk(to.rows, rows + k_tile * p.block_scale_strides[1], rows_bytes, full);
        if (column_bytes) kw::cp_async_bulk(to.column, column + k_tile / kColumnSteps * kColumnSteps, column_bytes, full);
    }
};

__device__ __forceinline__ void produce(const Block& block) {
    kw::PipelineState<kNumStages> state;
    for (int tile = block.first_tile(); tile < block.num_tiles(); tile += block.tile_step()) {
        const kw::TileIndex at = block.position(tile);
        const BlockScaleSource scales(block.p, at);
        for (int k_tile = block.first_k_tile(); k_tile < block.end_k_tile(); ++k_tile, state.advance()) {
            unsigned long long* const full = &block.barriers.full[state.stage];
            kw::mbarrier_wait_parity(&block.barriers.empty[state.stage], state.parity ^ 1);
            kw::mbarrier_arrive_expect_tx(full, kStageBytes + (kBlockScales ? scales.rows_bytes + scales.column_bytes : 0));
            if constexpr (kBlockScales) scales.copy(block.p, block.block_scales[state.stage], k_tile, full);
            const int k = k_tile * kBlockK;
#pragma unroll
            for (int term = 0; term < kTerms; ++term) {
                load_tile<kBlockM, kTransposeA, kClusterN>(block.a(state.stage, term), &block.p.a[term], full, at.m,
                                                           k + first_in_panel(term), at.batch, block.rank);
                if constexpr (kGated) {
                    unsigned char* const b = block.b(state.stage, term);
                    load_tile<kOutN, kTransposeB, kClusterM>(b, &block.p.b[term], full, at.n, k, at.batch, block.rank);
                    load_tile<kOutN, kTransposeB, kClusterM>(b + kBytesB / 2, &block.p.b[term], full, block.p.N + at.n, k,
                                                             at.batch, block.rank);
                } else {
                    load_tile<kLoadedN, kTransposeB, kClusterM>(block.b(state.stage, term), &block.p.b[term], full, at.n, k,
                                                               at.batch, block.rank);
                }
            }
        }
    }
    kw::griddepcontrol_launch_dependents();
    // No block may exit while others still arrive at its barriers.
    if constexpr (kClusterM * kClusterN > 1) {
        for (int stage = 0; stage < kNumStages; ++stage, state.advance())
            kw::mbarrier_wait_parity(&block.barriers.empty[state.stage], state.parity ^ 1);
    }
}

// Arrives at the empty barrier of a stage in every block that writes to it.
__device__ __forceinline__ void release(const Block& block, int stage) {
    const int thread = threadIdx.x % 128;
    if constexpr (kClusterM * kClusterN > 1) {
        if (thread < kClusterM * kClusterN) kw::mbarrier_arrive_cluster(&block.barriers.empty[stage], thread);
    } else {
        if (thread == 0) kw::mbarrier_arrive(&block.barriers.empty[stage]);
    }
}

__device__ __forceinline__ void multiply(const Block& block, int stage, int consumer, int term_a, int term_b, bool accumulate,
                                         Accumulator& acc) {
    const unsigned long long a = MatrixA::descriptor(block.a(stage, term_a) +
                                                     MatrixA::row_offset((kPingPong ? 0 : consumer) * kFragments * 64));
    const unsigned long long b = MatrixB::descriptor(block.b(stage, term_b));
#pragma unroll
    for (int step = 0; step < kStepsK; ++step)
#pragma unroll
        for (int f = 0; f < kFragments; ++f)
            Wgmma::issue(acc[f], kw::advance(a, MatrixA::k_offset(step) + MatrixA::row_offset(64 * f)),
                         kw::advance(b, MatrixB::k_offset(step)), accumulate || step > 0);
}

// With ping-pong, consumers multiply in turns. A consumer may only wait for a buffer after its previous use was full, since
// a barrier distinguishes consecutive phases only: the turn passes when the last buffer of a tile is full.
constexpr int kTurnBarrier = 8;
// Whether promotion overlaps with the next step: three times the accumulators fit a thread's registers.
constexpr bool kOverlapped = kTerms == 1 && kPromoteTiles == 1 && 3 * kFragments * kBlockN / 2 <= 192;
static_assert(!kBlockScales || (kPromoteTiles == 1 && kTerms == 1 && kElementBytes == 1 && kOutN == 128));
__device__ __forceinline__ void pass_turn(int consumer) { kw::bar_arrive(kTurnBarrier + 1 - consumer, 256); }

__device__ __forceinline__ void set_zero(Accumulator& acc) {
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
        for (int i = 0; i < kBlockN / 2; ++i) acc[f][i] = 0.0f;
}

// Sums of a tile's products.
__device__ __forceinline__ void main_loop(const Block& block, int consumer, bool is_last,
                                          kw::PipelineState<kNumStages>& state, Accumulator& acc) {
    int previous = -1;
    const int begin = block.first_k_tile(), end = block.end_k_tile();
    if (begin >= end) set_zero(acc);
    for (int k_tile = begin; k_tile < end; ++k_tile, state.advance()) {
        kw::mbarrier_wait_parity(&block.barriers.full[state.stage], state.parity);
        if (kPingPong && k_tile == end - 1 && !is_last) pass_turn(consumer);
        kw::wgmma_fence();
        multiply(block, state.stage, consumer, 0, 0, k_tile > begin, acc);
        kw::wgmma_commit_group();
        kw::wgmma_wait_group<1>();
        if (previous >= 0) release(block, previous);
        previous = state.stage;
    }
    kw::wgmma_wait_group<0>();
    if (previous >= 0) release(block, previous);
}

// The factors of a thread's partial sums of a step of K. Loaded before the step's wgmmas are issued: when these complete,
// all warps have read the factors and the stage may be released.
struct StepScales {
    float rows[kFragments][2], column;

    __device__ __forceinline__ void load(const Block& block, int stage, int k_tile, int consumer) {
        if constexpr (kBlockScales) {
            const BlockScales& from = block.block_scales[stage];
            const int first = (kPingPong ? 0 : consumer) * kFragments * 64 + thread_row();
#pragma unroll
            for (int f = 0; f < kFragments; ++f)
#pragma unroll
                for (int half = 0; half < 2; ++half) rows[f][half] = from.rows[first + 64 * f + 8 * half];
            column = from.column[k_tile % kColumnSteps];
        }
    }
    __device__ __forceinline__ void add(Accumulator& total, const Accumulator& partial) const {
#pragma unroll
        for (int f = 0; f < kFragments; ++f)
#pragma unroll
            for (int i = 0; i < kBlockN / 2; ++i) {
                if constexpr (kBlockScales) {
                    total[f][i] = fmaf(rows[f][i % 4 / 2] * column, partial[f][i], total[f][i]);
                } else {
                    total[f][i] += partial[f][i];
                }
            }
    }
};

// The same, with partial sums added in FP32 registers every kPromoteTiles steps, since tensor cores round sums towards
// zero; with two terms, plus 2^-11 times the sums of the products of high and low terms.
__device__ __forceinline__ void promoted_main_loop(const Block& block, int consumer, bool is_last,
                                                   kw::PipelineState<kNumStages>& state, Accumulator& total) {
    Accumulator partial, small;
    StepScales scales;
    set_zero(total);
    const int begin = block.first_k_tile(), end = block.end_k_tile();
    for (int k_tile = begin; k_tile < end;) {
        bool is_first = true;
        for (int i = 0; i < kPromoteTiles && k_tile < end; ++i, ++k_tile, state.advance()) {
            kw::mbarrier_wait_parity(&block.barriers.full[state.stage], state.parity);
            if (kPingPong && k_tile == end - 1 && !is_last) pass_turn(consumer);
            scales.load(block, state.stage, k_tile, consumer);
            kw::wgmma_fence();
            multiply(block, state.stage, consumer, 0, 0, !is_first, partial);
            if constexpr (kTerms == 2) {
                multiply(block, state.stage, consumer, 0, 1, k_tile > begin, small);
                multiply(block, state.stage, consumer, 1, 0, true, small);
            }
            kw::wgmma_commit_group();
            kw::wgmma_wait_group<0>();
            release(block, state.stage);
            is_first = false;
        }
        scales.add(total, partial);
    }
    if constexpr (kTerms == 2) {
        if (begin < end) {
#pragma unroll
            for (int f = 0; f < kFragments; ++f)
#pragma unroll
                for (int i = 0; i < kBlockN / 2; ++i) total[f][i] += 0x1p-11f * small[f][i];
        }
    }
}

// Promotion after every step, with two partial sums: one is added while the tensor cores compute the other.
__device__ __forceinline__ void overlapped_main_loop(const Block& block, int consumer, bool is_last,
                                                     kw::PipelineState<kNumStages>& state, Accumulator& total) {
    Accumulator partial[2];
    StepScales scales[2];
    set_zero(total);
    const int begin = block.first_k_tile(), end = block.end_k_tile();
    int previous = 0;
    auto issue = [&](int one, int k_tile) {
        kw::mbarrier_wait_parity(&block.barriers.full[state.stage], state.parity);
        if (kPingPong && k_tile == end - 1 && !is_last) pass_turn(consumer);
        scales[one].load(block, state.stage, k_tile, consumer);
        kw::wgmma_fence();
        multiply(block, state.stage, consumer, 0, 0, false, partial[one]);
        kw::wgmma_commit_group();
    };
    auto issue_and_add_other = [&](int one, int k_tile) {
        issue(one, k_tile);
        kw::wgmma_wait_group<1>();
        release(block, previous);
        scales[1 - one].add(total, partial[1 - one]);
        previous = state.stage;
        state.advance();
    };
    auto add_last = [&](int one) {
        kw::wgmma_wait_group<0>();
        release(block, previous);
        scales[one].add(total, partial[one]);
    };
    if (begin >= end) return;
    issue(0, begin);
    previous = state.stage;
    state.advance();
    int k_tile = begin + 1;
    for (; k_tile + 1 < end; k_tile += 2) {
        issue_and_add_other(1, k_tile);
        issue_and_add_other(0, k_tile + 1);
    }
    if (k_tile < end) {
        issue_and_add_other(1, k_tile);
        add_last(1);
    } else {
        add_last(0);
    }
}
