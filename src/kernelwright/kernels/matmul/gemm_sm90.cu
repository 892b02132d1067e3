// D = activation(alpha A B + bias + beta residual) on Hopper's tensor cores; the configuration is in macros.
//
// A producer warp loads tiles of A and B through TMA into a ring of buffers; consumer warpgroups multiply them with wgmma
// and keep the accumulators in registers. Blocks are persistent. A cluster shares loads by multicast, or the steps of K
// (SPLIT_K), whose partial sums it adds in a fixed order through distributed shared memory. With TERMS 2, operands are
// FP16 pairs (high, low * 2^11) of an FP32 matrix, multiplied three times; see split.cu.
// Bound: tensor cores where M, N and K are in the thousands; the bytes of the weights below about 200 rows.
// Source: PTX ISA; fast.cu (clusters, order of tiles); Ootomo & Yokota 2022, arXiv:2203.03341 (two terms).
#include "kw/epilogue/activation.cuh"
#include "kw/mma/shared_matrix.cuh"
#include "kw/pipeline/pipeline.cuh"
#include "kw/ptx/cluster.cuh"
#include "kw/ptx/cp_async_bulk_tensor.cuh"
#include "kw/ptx/griddepcontrol.cuh"
#include "kw/ptx/ldmatrix.cuh"
#include "kw/ptx/setmaxnreg.cuh"
#include "kw/ptx/wgmma.cuh"
#include "kw/scheduler/tile_scheduler.cuh"

using InA = kw::IN_A;
using InB = kw::IN_B;
using Out = kw::OUT;
using Extra = kw::EXTRA;  // of bias and residual
using Activation = kw::ACTIVATION;
constexpr int kBlockM = BLOCK_M, kBlockN = BLOCK_N, kNumStages = NUM_STAGES, kNumConsumers = NUM_CONSUMERS;
constexpr int kClusterM = CLUSTER_M, kClusterN = CLUSTER_N, kSplitK = SPLIT_K, kClusterSize = kClusterM * kClusterN * kSplitK;
constexpr int kTerms = TERMS, kPromoteTiles = PROMOTE_TILES;
constexpr bool kTransposeA = TRANSPOSE_A, kTransposeB = TRANSPOSE_B;
constexpr bool kSwapped = SWAPPED;  // rows of this product are the contiguous dimension of the output
constexpr bool kTmaStore = TMA_STORE, kHasBias = HAS_BIAS, kHasResidual = HAS_RESIDUAL, kHasScales = HAS_SCALES;
constexpr bool kPingPong = PING_PONG;  // each consumer has its own tile: one multiplies while the other stores
constexpr bool kGated = GATED;  // B is two matrices, gate above up: silu(A gate) * (A up)

constexpr int kElementBytes = ELEMENT_BYTES, kBlockK = kw::kSwizzleBytes / kElementBytes, kStepsK = 4;
constexpr int kConsumersPerTile = kPingPong ? 1 : kNumConsumers, kFragments = kBlockM / (64 * kConsumersPerTile);
constexpr int kBytesA = kBlockM * kw::kSwizzleBytes, kBytesB = kBlockN * kw::kSwizzleBytes;
constexpr int kStageBytes = kTerms * (kBytesA + kBytesB);
constexpr int kOutN = kGated ? kBlockN / 2 : kBlockN;
constexpr int kStoreColumns = kw::kSwizzleBytes / sizeof(Out);  // contiguous elements of a stored tile
constexpr int kStoreBytes = 64 * kw::kSwizzleBytes, kStoreBuffers = kTmaStore ? 2 : 0;
constexpr int kThreads = 128 * (kNumConsumers + 1);
constexpr int kReductionPitch = kSwapped ? kBlockM + 4 : kBlockN + 4;
static_assert(kBlockM % (64 * kConsumersPerTile) == 0 && (kClusterM == 1 || kClusterN == 1) && !(kPingPong && (kSplitK > 1 || kNumConsumers != 2)));
static_assert(kSplitK == 1 || kReductionPitch * (kSwapped ? kBlockN : kBlockM) * 4 <= kNumStages * kStageBytes);

using MatrixA = kw::SharedMatrix<kElementBytes, kTransposeA>;
using MatrixB = kw::SharedMatrix<kElementBytes, kTransposeB>;
using Wgmma = kw::wgmma_mma_async<InA, InB, kBlockN, kTransposeA, kTransposeB>;
using Accumulator = float[kFragments][kBlockN / 2];

// An FP32 operand before it was split.
struct Fp32Operand {
    const float* data;
    long long row_stride, k_stride, batch_stride;
    __device__ float at(int row, int k, int batch) const { return data[row * row_stride + k * k_stride + batch * batch_stride]; }
};

struct GemmParams {
    kw::TensorMap a[kTerms], b[kTerms], out_map;
    Out* out;
    const Extra* bias;
    const Extra* residual;
    const float* row_scale;
    const float* column_scale;
    long long out_strides[3], residual_strides[3];  // row, column, batch, in elements
    int M, N, K, batch, raster_group;               // N: columns of the output
    float alpha, beta;
    Fp32Operand fp32_a, fp32_b;  // only with two terms
};

// Bias and scales of the columns of a consumer's tile.
struct ColumnFactors {
    static constexpr bool kIsUsed = !kSwapped && (kHasBias || kHasScales);
    float bias[!kSwapped && kHasBias ? kOutN : 1], scale[!kSwapped && kHasScales ? kOutN : 1];
};

struct SharedStorage {
    kw::PipelineBarriers<kNumStages> barriers;
    ColumnFactors factors[ColumnFactors::kIsUsed ? kNumConsumers : 1];
};

struct Block {
    const GemmParams& p;
    unsigned char* const stages;
    kw::PipelineBarriers<kNumStages>& barriers;
    const int rank;  // in the cluster

    __device__ int tiles_m() const { return (p.M + kBlockM * kClusterM - 1) / (kBlockM * kClusterM); }
    __device__ int tiles_n() const { return (p.N + kOutN * kClusterN - 1) / (kOutN * kClusterN); }
    __device__ int num_tiles() const { return tiles_m() * tiles_n() * p.batch; }
    __device__ int first_tile() const { return blockIdx.x / kClusterSize; }
    __device__ int tile_step() const { return gridDim.x / kClusterSize; }
    // First row, first column and batch of this block's part of a tile of the cluster.
    __device__ kw::TileIndex position(int tile) const {
        const kw::TileIndex index = kw::grouped_raster(tile, tiles_m(), tiles_n(), p.raster_group);
        return {(index.m * kClusterM + (kClusterM > 1 ? rank : 0)) * kBlockM,
                (index.n * kClusterN + (kClusterN > 1 ? rank : 0)) * kOutN, index.batch};
    }
    __device__ int k_tiles() const { return (p.K + kBlockK - 1) / kBlockK; }
    __device__ int first_k_tile() const { return kSplitK > 1 ? k_tiles() * rank / kSplitK : 0; }
    __device__ int end_k_tile() const { return kSplitK > 1 ? k_tiles() * (rank + 1) / kSplitK : k_tiles(); }
    __device__ unsigned char* a(int stage, int term) const { return stages + stage * kStageBytes + term * kBytesA; }
    __device__ unsigned char* b(int stage, int term) const {
        return stages + stage * kStageBytes + kTerms * kBytesA + term * kBytesB;
    }
};

// Loads rows of a tile into shared memory; transposed ones in panels of 128 bytes. Of a tile that `kShared` blocks of the
// cluster need, each loads a part for all: some of the rows, or of the steps of K.
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

__device__ __forceinline__ void produce(const Block& block) {
    kw::PipelineState<kNumStages> state;
    for (int tile = block.first_tile(); tile < block.num_tiles(); tile += block.tile_step()) {
        const kw::TileIndex at = block.position(tile);
        for (int k_tile = block.first_k_tile(); k_tile < block.end_k_tile(); ++k_tile, state.advance()) {
            unsigned long long* const full = &block.barriers.full[state.stage];
            kw::mbarrier_wait_parity(&block.barriers.empty[state.stage], state.parity ^ 1);
            kw::mbarrier_arrive_expect_tx(full, kStageBytes);
            const int k = k_tile * kBlockK;
#pragma unroll
            for (int term = 0; term < kTerms; ++term) {
                load_tile<kBlockM, kTransposeA, kClusterN>(block.a(state.stage, term), &block.p.a[term], full, at.m, k,
                                                           at.batch, block.rank);
                if constexpr (kGated) {
                    unsigned char* const b = block.b(state.stage, term);
                    load_tile<kOutN, kTransposeB, kClusterM>(b, &block.p.b[term], full, at.n, k, at.batch, block.rank);
                    load_tile<kOutN, kTransposeB, kClusterM>(b + kBytesB / 2, &block.p.b[term], full, block.p.N + at.n, k,
                                                             at.batch, block.rank);
                } else {
                    load_tile<kBlockN, kTransposeB, kClusterM>(block.b(state.stage, term), &block.p.b[term], full, at.n, k,
                                                               at.batch, block.rank);
                }
            }
        }
    }
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
__device__ __forceinline__ void pass_turn(int consumer) { kw::bar_arrive(kTurnBarrier + 1 - consumer, 256); }

// Sums of a tile's products.
__device__ __forceinline__ void main_loop(const Block& block, int consumer, bool is_last,
                                          kw::PipelineState<kNumStages>& state, Accumulator& acc) {
    int previous = -1;
    const int begin = block.first_k_tile(), end = block.end_k_tile();
    if (begin >= end) {
#pragma unroll
        for (int f = 0; f < kFragments; ++f)
#pragma unroll
            for (int i = 0; i < kBlockN / 2; ++i) acc[f][i] = 0.0f;
    }
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

// The same, with partial sums added in FP32 registers every kPromoteTiles steps, since tensor cores round sums towards
// zero; with two terms, plus 2^-11 times the sums of the products of high and low terms.
__device__ __forceinline__ void promoted_main_loop(const Block& block, int consumer, bool is_last,
                                                   kw::PipelineState<kNumStages>& state, Accumulator& total) {
    Accumulator partial, small;
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
        for (int i = 0; i < kBlockN / 2; ++i) total[f][i] = 0.0f;
    const int begin = block.first_k_tile(), end = block.end_k_tile();
    for (int k_tile = begin; k_tile < end;) {
        bool is_first = true;
        for (int i = 0; i < kPromoteTiles && k_tile < end; ++i, ++k_tile, state.advance()) {
            kw::mbarrier_wait_parity(&block.barriers.full[state.stage], state.parity);
            if (kPingPong && k_tile == end - 1 && !is_last) pass_turn(consumer);
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
#pragma unroll
        for (int f = 0; f < kFragments; ++f)
#pragma unroll
            for (int i = 0; i < kBlockN / 2; ++i) total[f][i] += partial[f][i];
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

// Factor of a row or a column of a batch; anything outside.
__device__ __forceinline__ float scale_at(const float* scales, int index, int size, int batch) {
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
            scale[i] = scale_at(p.column_scale, at, p.N, batch);
        }
    }
    __device__ __forceinline__ void store(ColumnFactors& to, int consumer) const {
        kw::bar_sync(1 + consumer, 128);
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) {
            const int at = i * 128 + threadIdx.x % 128;
            if (kHasBias && at < kOutN) to.bias[at] = bias[i];
            if (kHasScales && at < kOutN) to.scale[at] = scale[i];
        }
        kw::bar_sync(1 + consumer, 128);
    }
};

__device__ __forceinline__ void store(const GemmParams& p, float value, int row, int column, int batch) {
    if (row < p.M && column < p.N)
        p.out[row * p.out_strides[0] + column * p.out_strides[1] + batch * p.out_strides[2]] = kw::from_float<Out>(value);
}

// Replaces the sums of a fragment, whose first row and column are given, by values of the output.
__device__ __forceinline__ void finish_fragment(const GemmParams& p, const ColumnFactors& factors, float (&d)[kBlockN / 2],
                                                int row, int column, int batch) {
    const int lane = threadIdx.x % 32, thread_row = row + threadIdx.x % 128 / 32 * 16 + lane / 4;
    float row_scales[2], row_bias[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        row_scales[half] = p.alpha * scale_at(p.row_scale, thread_row + 8 * half, p.M, batch);
        if (kSwapped) row_bias[half] = bias_at(p, thread_row + 8 * half, p.M);
    }
#pragma unroll
    for (int i = 0; i < kOutN / 2; ++i) {
        const int half = i % 4 / 2, at = i / 4 * 8 + lane % 4 * 2 + i % 2;
        if constexpr (kGated) {
            const float gate = row_scales[half] * d[i], up = row_scales[half] * d[i + kBlockN / 4];
            d[i] = kw::Silu::apply(gate) * up;
        } else {
            float scale = row_scales[half], bias = row_bias[half];
            if constexpr (kHasScales) scale *= kSwapped ? scale_at(p.column_scale, column + at, p.N, batch) : factors.scale[at];
            if constexpr (kHasBias && !kSwapped) bias = factors.bias[at];
            d[i] = finish(p, fmaf(scale, d[i], bias), thread_row + 8 * half, column + at, batch);
        }
    }
}

__device__ __forceinline__ void store_fragment(const GemmParams& p, const float (&d)[kBlockN / 2], int row, int column,
                                               int batch) {
    const int lane = threadIdx.x % 32, thread_row = row + threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < kOutN / 2; ++i)
        store(p, d[i], thread_row + i % 4 / 2 * 8, column + i / 4 * 8 + lane % 4 * 2 + i % 2, batch);
}

// Writes 64 columns of a 16-bit fragment, or 32 of a 32-bit one, to shared memory as TMA stores them, with a 128-byte
// swizzle; transposed if the rows are contiguous in the output.
template <typename T = Out>
__device__ __forceinline__ void stage_columns(unsigned char* smem, const float (&d)[kBlockN / 2], int column) {
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    if constexpr (sizeof(T) == 2) {
        const int matrix = lane / 8, r = lane % 8;
        constexpr int kColumns = kSwapped && kOutN < 64 ? kOutN : 64;
#pragma unroll
        for (int j = 0; j < kColumns / 8; j += 2) {
            const int at = column / 2 + 4 * j;
            unsigned bits[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) bits[i] = j + i / 2 < kColumns / 8 ? kw::pack<T>(d[(at + 2 * i) % (kBlockN / 2)], d[(at + 2 * i + 1) % (kBlockN / 2)]) : 0;
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
                const int at = column / 2 + 4 * j + 2 * half, part = 2 * j + lane % 4 / 2;
                *reinterpret_cast<float2*>(smem + (warp * 16 + r + 8 * half) * kw::kSwizzleBytes + ((part ^ r) * 16) +
                                           lane % 2 * 8) = make_float2(d[at], d[at + 1]);
            }
    }
}

// Stores a fragment through TMA, which clips it to the output; the copies overlap with what follows.
__device__ __forceinline__ void tma_store_fragment(const GemmParams& p, const float (&d)[kBlockN / 2], unsigned char* buffers,
                                                   int row, int column, int batch, int consumer, int& buffer) {
    constexpr int kColumns = kSwapped ? 64 : kStoreColumns;
    static_assert(kOutN >= kColumns || kSwapped);
#pragma unroll
    for (int at = 0; at < kOutN; at += kColumns) {
        const int from = kOutN < kColumns ? 0 : min(at, kOutN - kColumns);  // the last columns may be stored twice
        unsigned char* const smem = buffers + buffer * kStoreBytes;
        buffer ^= 1;
        if (threadIdx.x % 128 == 0) kw::cp_async_bulk_wait_group_read<1>();
        kw::bar_sync(1 + consumer, 128);
        stage_columns(smem, d, from);
        kw::fence_proxy_async();
        kw::bar_sync(1 + consumer, 128);
        if (threadIdx.x % 128 == 0) {
            const int x = kSwapped ? row : column + from, y = kSwapped ? column + from : row;
            if (row < p.M && column + from < p.N) kw::cp_async_bulk_tensor_3d_store(&p.out_map, smem, x, y, batch);
            kw::cp_async_bulk_commit_group();
        }
    }
}

// Adds the cluster's partial sums in the order of K, each block a part of the tile, and stores them.
__device__ __forceinline__ void reduce_and_store(const Block& block, const Accumulator& acc, int consumer, kw::TileIndex at) {
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
    unsigned remote[kSplitK];
#pragma unroll
    for (int part = 0; part < kSplitK; ++part) remote[part] = kw::mapa(sums, part);
    for (int i = block.rank * 128 * kNumConsumers + threadIdx.x - 128; i < kInner * kOuter; i += kSplitK * 128 * kNumConsumers) {
        const int inner = i % kInner, outer = i / kInner;
        const int row = at.m + (kSwapped ? inner : outer), column = at.n + (kSwapped ? outer : inner);
        float sum = 0.0f;
#pragma unroll
        for (int part = 0; part < kSplitK; ++part)
            sum += kw::ld_shared_cluster(remote[part] + 4 * (outer * kReductionPitch + inner));
        sum *= block.p.alpha * scale_at(block.p.row_scale, row, block.p.M, at.batch) *
               scale_at(block.p.column_scale, column, block.p.N, at.batch);
        sum += kSwapped ? bias_at(block.p, row, block.p.M) : bias_at(block.p, column, block.p.N);
        store(block.p, finish(block.p, sum, row, column, at.batch), row, column, at.batch);
    }
    kw::barrier_cluster_arrive();
    kw::barrier_cluster_wait();
}

__device__ __forceinline__ void consume(const Block& block, unsigned char* store_buffers, ColumnFactors* all_factors) {
    const int consumer = threadIdx.x / 128 - 1;
    unsigned char* const buffers = store_buffers + consumer * kStoreBuffers * kStoreBytes;
    ColumnFactors& factors = all_factors[ColumnFactors::kIsUsed ? consumer : 0];
    kw::PipelineState<kNumStages> state;
    int buffer = 0;
    if (kPingPong && consumer > 0) state.skip(consumer * block.k_tiles());
    for (int tile = block.first_tile() + (kPingPong ? consumer : 0) * block.tile_step(); tile < block.num_tiles();
         tile += (kPingPong ? kNumConsumers : 1) * block.tile_step()) {
        const kw::TileIndex at = block.position(tile);
        ColumnLoader columns;
        if constexpr (ColumnFactors::kIsUsed && kSplitK == 1) columns.load(block.p, at.n, at.batch);
        const bool is_last = tile + block.tile_step() >= block.num_tiles();  // of the block
        if (kPingPong && tile != block.first_tile()) kw::bar_sync(kTurnBarrier + consumer, 256);
        Accumulator acc;
        if constexpr (kPromoteTiles > 0) {
            promoted_main_loop(block, consumer, is_last, state, acc);
        } else {
            main_loop(block, consumer, is_last, state, acc);
        }
        if constexpr (kPingPong) state.skip((kNumConsumers - 1) * block.k_tiles());
        if constexpr (kSplitK > 1) {
            reduce_and_store(block, acc, consumer, at);
        } else {
            if constexpr (ColumnFactors::kIsUsed) columns.store(factors, consumer);
#pragma unroll
            for (int f = 0; f < kFragments; ++f) {
                const int row = at.m + ((kPingPong ? 0 : consumer) * kFragments + f) * 64;
                finish_fragment(block.p, factors, acc[f], row, at.n, at.batch);
                if constexpr (kTmaStore) {
                    tma_store_fragment(block.p, acc[f], buffers, row, at.n, at.batch, consumer, buffer);
                } else {
                    store_fragment(block.p, acc[f], row, at.n, at.batch);
                }
            }
        }
    }
    if (kTmaStore && threadIdx.x % 128 == 0) kw::cp_async_bulk_wait_group_read<0>();
}

extern "C" __global__ void __launch_bounds__(kThreads, MIN_BLOCKS)
gemm_sm90(const __grid_constant__ GemmParams p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    unsigned char* const stages = shared;
    unsigned char* const store_buffers = stages + kNumStages * kStageBytes;
    SharedStorage& storage = *reinterpret_cast<SharedStorage*>(store_buffers + kNumConsumers * kStoreBuffers * kStoreBytes);
    const Block block = {p, stages, storage.barriers, kClusterSize > 1 ? static_cast<int>(kw::cluster_ctarank()) : 0};
    if (threadIdx.x == 0) {
        storage.barriers.init<kConsumersPerTile * kClusterM * kClusterN>();
        kw::fence_mbarrier_init();
        for (int term = 0; term < kTerms; ++term) {
            kw::prefetch_tensormap(&p.a[term]);
            kw::prefetch_tensormap(&p.b[term]);
        }
    }
    if constexpr (kClusterSize > 1) {
        kw::barrier_cluster_arrive();
        kw::barrier_cluster_wait();
    } else {
        __syncthreads();
    }
    kw::griddepcontrol_wait();
    if (threadIdx.x < 128) {
        if constexpr (PRODUCER_REGISTERS > 0) kw::setmaxnreg_dec<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) produce(block);
        if constexpr (kSplitK > 1) {
            __syncwarp();
            for (int i = 0; i < 2; ++i) {
                kw::barrier_cluster_arrive();
                kw::barrier_cluster_wait();
            }
        }
    } else {
        if constexpr (CONSUMER_REGISTERS > 0) kw::setmaxnreg_inc<CONSUMER_REGISTERS>();
        consume(block, store_buffers, storage.factors);
    }
}

#if TERMS == 2
#include "recompute_lost.cuh"
#endif
