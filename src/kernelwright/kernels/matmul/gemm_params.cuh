// Part of gemm_sm90.cu: its configuration, its parameters, and what a block knows of its tiles.
#pragma once

#include "kw/epilogue/activation.cuh"
#include "kw/mma/shared_matrix.cuh"
#include "kw/pipeline/pipeline.cuh"
#include "kw/ptx/cluster.cuh"
#include "kw/ptx/cp_async_bulk_tensor.cuh"
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
constexpr bool kScalarScales = SCALAR_SCALES;  // one scale of A and one of B
constexpr bool kPingPong = PING_PONG;  // each consumer has its own tile: one multiplies while the other stores
constexpr bool kGated = GATED;  // B is two matrices, gate above up: silu(A gate) * (A up)
constexpr bool kSplitInLoop = SPLIT_IN_LOOP;  // A is FP32, of which consumers make two terms; its row scales are 1
constexpr bool kBlockScales = BLOCK_SCALES;  // of 128 elements along K: of each row of A, of each 128 rows of B
enum class RowStatistics { kNone, kSquareSum, kMaxExpSum };
constexpr RowStatistics kRowStatistics = RowStatistics::ROW_STATISTICS;

constexpr int kElementBytes = ELEMENT_BYTES, kBlockK = kw::kSwizzleBytes / kElementBytes, kStepsK = 4;
constexpr int kConsumersPerTile = kPingPong ? 1 : kNumConsumers, kFragments = kBlockM / (64 * kConsumersPerTile);
// Columns of B in shared memory: whole panels of a transposed tile.
constexpr int kLoadedN = kTransposeB ? (kBlockN + kBlockK - 1) / kBlockK * kBlockK : kBlockN;
constexpr int kBytesA = kBlockM * kw::kSwizzleBytes, kBytesB = kLoadedN * kw::kSwizzleBytes;
constexpr int kStageBytes = kTerms * (kBytesA + kBytesB);
constexpr int kOutN = kGated ? kBlockN / 2 : kBlockN;
constexpr int kStoreColumns = kw::kSwizzleBytes / sizeof(Out);  // contiguous elements of a stored tile
constexpr int kStoreBytes = 64 * kw::kSwizzleBytes, kStoreBuffers = kTmaStore ? 2 : 0;
constexpr int kThreads = 128 * (kNumConsumers + 1);
constexpr int kReductionPitch = kSwapped ? kBlockM + 4 : kBlockN + 4;
static_assert(kBlockM % (64 * kConsumersPerTile) == 0 && (kClusterM == 1 || kClusterN == 1) && !(kPingPong && (kSplitK > 1 || kNumConsumers != 2)));
static_assert(!kSplitInLoop || (kSwapped && kTerms == 2 && kFragments == 1 && !kTransposeA && !kPingPong && kClusterN == 1));
static_assert(kSplitK == 1 || kClusterM * kClusterN == 1);
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

// The first of the two rows, eight apart, that a thread has of a fragment.
__device__ __forceinline__ int thread_row() { return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4; }

struct GemmParams {
    kw::TensorMap a[kTerms], b[kTerms], out_map;
    Out* out;
    const Extra* bias;
    const Extra* residual;
    const float* row_scale;
    const float* column_scale;
    float* row_statistics;  // (batch, M, tiles of N), or pairs of them
    long long out_strides[3], residual_strides[3];  // row, column, batch, in elements
    int M, N, K, batch, raster_group;               // N: columns of the output
    float alpha, beta;
    long long block_scale_strides[6];  // row (1), block of K and batch of A's; column, block of K (1) and batch of B's
    Fp32Operand fp32_a, fp32_b;  // only with two terms
};

// Bias and scales of the columns of a consumer's tile.
struct ColumnFactors {
    static constexpr bool kHasColumnScales = kHasScales && !kScalarScales, kIsUsed = !kSwapped && (kHasBias || kHasColumnScales);
    float bias[!kSwapped && kHasBias ? kOutN : 1], scale[!kSwapped && kHasColumnScales ? kOutN : 1];
};

// Scales of a step of K: of the rows of A, and, with those of the steps around it, of the columns.
constexpr int kColumnSteps = 4;
struct alignas(kBlockScales ? 16 : 4) BlockScales {
    float rows[kBlockScales ? kBlockM : 1], column[kBlockScales ? kColumnSteps : 1];
};

struct SharedStorage {
    kw::PipelineBarriers<kNumStages> barriers;
    BlockScales block_scales[kBlockScales ? kNumStages : 1];
    ColumnFactors factors[ColumnFactors::kIsUsed ? kNumConsumers : 1];
};
static_assert(kNumStages * kStageBytes + kNumConsumers * kStoreBuffers * kStoreBytes + sizeof(SharedStorage) <= SHARED_BYTES,
              "Variant.shared_bytes of configs.py");

struct Block {
    const GemmParams& p;
    unsigned char* const stages;
    kw::PipelineBarriers<kNumStages>& barriers;
    BlockScales* const block_scales;
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

