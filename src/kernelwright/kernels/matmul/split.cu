// Splits FP32 matrices into two FP16 terms, x * scale = high + low * 2^-11, with a power of two for each row (or column)
// that makes its largest element 2^14 to 2^15. What FP16 cannot hold that way (infinity, NaN, a largest element beyond
// 2^60 or below 2^-60) has a scale of NaN and zeros as terms. An element has a relative error of 2^-22 at most, or an
// absolute one of 2^-50 of the largest. For a product that splits the other operand itself (split_loop.cuh), the low
// term is not scaled, which makes that 2^-39, and K is in the order of the registers of mma.
// Bound: memory, 4 bytes read twice (the second time from L2 or L1) and 4 written for each element. A batch of elements is
// loaded before their terms are stored: the compiler cannot know that these do not overlap.
// Source: Ootomo & Yokota 2022, arXiv:2203.03341.
#include "fp32_terms.cuh"
#include "kw/ptx/cvt.cuh"
#include "kw/ptx/griddepcontrol.cuh"

constexpr int kThreads = 256;

// How the blocks share the rows of an operand: a block or a warp for each row along K; of rows that are contiguous, a block
// for each 8, or for each tile. kNone: there are no terms, and all scales are 1.
enum class Layout : int { kBlockRows, kWarpRows, kColumns, kColumnTiles, kNone };

// A matrix of (batch, rows, K), contiguous along K or its rows, and the memory of its terms. `line_stride` is that of rows
// or of K. The pitch of the terms is a multiple of 8; what is beyond the end of a line is not written, since TMA does not
// read it. Filled by split_operands.py.
struct Operand {
    const float* x;
    kw::f16 *high, *low;
    float* inverse;
    unsigned* largest;  // (batch, chunks, rows), only for tiles
    long long line_stride, batch_stride;
    int rows, k, pitch;
    Layout layout;
    int for_registers;  // the low term is not scaled, and K in the order of registers
    int chunks;         // of K, only for tiles
};
struct SplitParams {
    Operand a, b;
    int batches, a_blocks;
};

__device__ __forceinline__ void split(float x, float scale, float low_factor, kw::f16& high, kw::f16& low) {
    const float scaled = scale == 0.0f ? 0.0f : x * scale;  // infinity times zero would be NaN
    high = kw::from_float<kw::f16>(scaled);
    low = kw::from_float<kw::f16>((scaled - kw::to_float(high)) * low_factor);
}

// Elements 4 i to 4 i + 3 of a row. In the order of registers, the first two and the last two are eight apart.
__device__ __forceinline__ void split_x4(float4 x, float scale, float low_factor, int i, bool for_registers, kw::f16* high,
                                         kw::f16* low) {
    kw::f16 h[4], l[4];
    split(x.x, scale, low_factor, h[0], l[0]);
    split(x.y, scale, low_factor, h[1], l[1]);
    split(x.z, scale, low_factor, h[2], l[2]);
    split(x.w, scale, low_factor, h[3], l[3]);
    const uint2 highs = make_uint2(h[0].bits | h[1].bits << 16, h[2].bits | h[3].bits << 16);
    const uint2 lows = make_uint2(l[0].bits | l[1].bits << 16, l[2].bits | l[3].bits << 16);
    if (for_registers) {
        const int at = position_in_registers(4 * i);
        *reinterpret_cast<unsigned*>(high + at) = highs.x;
        *reinterpret_cast<unsigned*>(high + at + 8) = highs.y;
        *reinterpret_cast<unsigned*>(low + at) = lows.x;
        *reinterpret_cast<unsigned*>(low + at + 8) = lows.y;
    } else {
        *reinterpret_cast<uint2*>(high + 4 * i) = highs;
        *reinterpret_cast<uint2*>(low + 4 * i) = lows;
    }
}

// Rows that are contiguous along K, kRowThreads threads for each. The terms are (batch, rows, pitch).
template <int kRowThreads>
__device__ __forceinline__ void split_rows(const Operand& operand, long long block, int batches) {
    constexpr int kRows = kThreads / kRowThreads, kBatch = 4;
    const int thread = threadIdx.x % kRowThreads, k = operand.k;
    const long long row = block * kRows + threadIdx.x / kRowThreads;
    if (row >= static_cast<long long>(batches) * operand.rows) return;
    const float* const x = operand.x + row / operand.rows * operand.batch_stride + row % operand.rows * operand.line_stride;
    kw::f16 *const high = operand.high + row * operand.pitch, *const low = operand.low + row * operand.pitch;
    const int vectors = reinterpret_cast<unsigned long long>(x) % 16 == 0 ? k / 4 : 0;
    unsigned largest = 0;
    for (int i = thread; i < vectors; i += kRowThreads) {
        const float4 v = reinterpret_cast<const float4*>(x)[i];
        largest = max(largest, max(max(magnitude(v.x), magnitude(v.y)), max(magnitude(v.z), magnitude(v.w))));
    }
    for (int i = 4 * vectors + thread; i < k; i += kRowThreads) largest = max(largest, magnitude(x[i]));
    for (int step = 16; step > 0; step /= 2) largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    if constexpr (kRowThreads > 32) {
        __shared__ unsigned warp_largest[kThreads / 32];
        if (threadIdx.x % 32 == 0) warp_largest[threadIdx.x / 32] = largest;
        __syncthreads();
        for (int warp = 0; warp < kThreads / 32; ++warp) largest = max(largest, warp_largest[warp]);
    }
    const Scale scale(largest);
    const bool for_registers = operand.for_registers;
    const float low_factor = for_registers ? 1.0f : 2048.0f;
    if (thread == 0) operand.inverse[row] = scale.inverse;
    for (int first = thread; first < vectors; first += kBatch * kRowThreads) {
        float4 v[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) v[j] = reinterpret_cast<const float4*>(x)[min(first + j * kRowThreads, vectors - 1)];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
            const int i = first + j * kRowThreads;
            if (i < vectors) split_x4(v[j], scale.scale, low_factor, i, for_registers, high, low);
        }
    }
    for (int i = 4 * vectors + thread; i < k; i += kRowThreads) {
        const int at = for_registers ? position_in_registers(i) : i;
        split(x[i], scale.scale, low_factor, high[at], low[at]);
    }
}

// A few columns of a matrix whose rows, along K, are contiguous: a block for kColumns of a batch, which reads them twice.
// The terms are (batch, K, pitch).
__device__ __forceinline__ void split_columns(const Operand& operand, int block) {
    constexpr int kColumns = 8, kLanes = kThreads / kColumns, kBatch = 16;  // lanes along K
    __shared__ unsigned found[kLanes][kColumns];
    const int in_block = threadIdx.x % kColumns, lane = threadIdx.x / kColumns;
    const int columns = operand.rows, k = operand.k, blocks = (columns + kColumns - 1) / kColumns;  // of a batch
    const long long batch = block / blocks, k_stride = operand.line_stride;
    const int column = block % blocks * kColumns + in_block;
    const bool is_inside = column < columns;
    const float* const x = operand.x + batch * operand.batch_stride + column;
    unsigned largest = 0;
    if (is_inside) {
#pragma unroll 16
        for (int i = lane; i < k; i += kLanes) largest = max(largest, magnitude(x[i * k_stride]));
    }
    found[lane][in_block] = largest;
    for (int step = kLanes / 2; step > 0; step /= 2) {
        __syncthreads();
        if (lane < step) found[lane][in_block] = max(found[lane][in_block], found[lane + step][in_block]);
    }
    __syncthreads();
    if (!is_inside) return;
    const Scale scale(found[0][in_block]);
    if (lane == 0) operand.inverse[batch * columns + column] = scale.inverse;
    const long long first = batch * k * operand.pitch + column;
    for (int begin = lane; begin < k; begin += kBatch * kLanes) {
        float v[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) v[j] = x[min(begin + j * kLanes, k - 1) * k_stride];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
            const int i = begin + j * kLanes;
            const long long at = first + static_cast<long long>(i) * operand.pitch;
            if (i < k) split(v[j], scale.scale, 2048.0f, operand.high[at], operand.low[at]);
        }
    }
}

// Columns of a large matrix: tiles of kTileColumns and a chunk of K, a block each. A first kernel finds the largest
// magnitude of each column in each chunk; the second takes the tiles in the opposite order, so that some are in the L2.
constexpr int kTileColumns = 128, kTileLines = 8;  // lines that a warp loads before it uses them
struct ColumnTile {
    long long batch;
    int column, chunk, begin, end;  // lines along K
    const float* x;                 // of the batch
    bool is_aligned;                // to vectors

    __device__ __forceinline__ ColumnTile(const Operand& operand, int block) {
        const int tiles = (operand.rows + kTileColumns - 1) / kTileColumns;
        batch = block / tiles / operand.chunks;
        column = block % tiles * kTileColumns;
        chunk = block / tiles % operand.chunks;
        const int lines = (operand.k + operand.chunks - 1) / operand.chunks;
        begin = min(chunk * lines, operand.k), end = min(begin + lines, operand.k);
        x = operand.x + batch * operand.batch_stride;
        is_aligned = (reinterpret_cast<unsigned long long>(x) | 4 * operand.line_stride) % 16 == 0;
    }
    __device__ __forceinline__ float4 load(const Operand& operand, int line, int at) const {
        const float* const from = x + line * operand.line_stride + at;
        if (is_aligned && at + 4 <= operand.rows) return *reinterpret_cast<const float4*>(from);
        const int left = operand.rows - at;
        return make_float4(left > 0 ? from[0] : 0.0f, left > 1 ? from[1] : 0.0f, left > 2 ? from[2] : 0.0f,
                           left > 3 ? from[3] : 0.0f);
    }
    // Calls use(line, four elements) for the lines of a warp; columns begin at `at`.
    template <class Use>
    __device__ __forceinline__ void for_each_vector(const Operand& operand, int at, Use use) const {
        constexpr int kWarps = kThreads / 32;
        for (int first = begin + threadIdx.x / 32; first < end; first += kWarps * kTileLines) {
            float4 v[kTileLines];
#pragma unroll
            for (int i = 0; i < kTileLines; ++i) v[i] = load(operand, min(first + i * kWarps, end - 1), at);
#pragma unroll
            for (int i = 0; i < kTileLines; ++i)
                if (first + i * kWarps < end) use(first + i * kWarps, v[i]);
        }
    }
};

__device__ __forceinline__ void find_largest_in_tile(const Operand& operand, int block) {
    __shared__ unsigned found[kThreads / 32][kTileColumns];
    const ColumnTile tile(operand, block);
    const int in_tile = threadIdx.x % 32 * 4;
    unsigned largest[4] = {};
    tile.for_each_vector(operand, tile.column + in_tile, [&](int, float4 v) {
        largest[0] = max(largest[0], magnitude(v.x));
        largest[1] = max(largest[1], magnitude(v.y));
        largest[2] = max(largest[2], magnitude(v.z));
        largest[3] = max(largest[3], magnitude(v.w));
    });
#pragma unroll
    for (int i = 0; i < 4; ++i) found[threadIdx.x / 32][in_tile + i] = largest[i];
    __syncthreads();
    const int column = threadIdx.x;
    if (column >= kTileColumns || tile.column + column >= operand.rows) return;
    unsigned all = 0;
#pragma unroll
    for (int warp = 0; warp < kThreads / 32; ++warp) all = max(all, found[warp][column]);
    operand.largest[(tile.batch * operand.chunks + tile.chunk) * operand.rows + tile.column + column] = all;
}

__device__ __forceinline__ void split_column_tile(const Operand& operand, int block) {
    __shared__ unsigned found[kThreads / kTileColumns][kTileColumns];
    const ColumnTile tile(operand, block);
    const int own = threadIdx.x % kTileColumns, part = threadIdx.x / kTileColumns, column = tile.column + own;
    unsigned largest = 0;
    if (column < operand.rows) {
        const unsigned* const from = operand.largest + tile.batch * operand.chunks * operand.rows + column;
#pragma unroll 8
        for (int chunk = part; chunk < operand.chunks; chunk += kThreads / kTileColumns)
            largest = max(largest, from[static_cast<long long>(chunk) * operand.rows]);
    }
    found[part][own] = largest;
    __syncthreads();
    const int in_tile = threadIdx.x % 32 * 4, at = tile.column + in_tile;
    float scales[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        unsigned all = 0;
#pragma unroll
        for (int j = 0; j < kThreads / kTileColumns; ++j) all = max(all, found[j][in_tile + i]);
        const Scale scale(all);
        scales[i] = scale.scale;
        if (tile.chunk == 0 && threadIdx.x < 32 && at + i < operand.rows)
            operand.inverse[tile.batch * operand.rows + at + i] = scale.inverse;
    }
    if (at >= operand.rows) return;
    const long long first = tile.batch * operand.k * operand.pitch + at;
    tile.for_each_vector(operand, at, [&](int line, float4 v) {
        kw::f16 h[4], l[4];
        split(v.x, scales[0], 2048.0f, h[0], l[0]);
        split(v.y, scales[1], 2048.0f, h[1], l[1]);
        split(v.z, scales[2], 2048.0f, h[2], l[2]);
        split(v.w, scales[3], 2048.0f, h[3], l[3]);
        const long long to = first + static_cast<long long>(line) * operand.pitch;
        *reinterpret_cast<uint2*>(operand.high + to) = make_uint2(h[0].bits | h[1].bits << 16, h[2].bits | h[3].bits << 16);
        *reinterpret_cast<uint2*>(operand.low + to) = make_uint2(l[0].bits | l[1].bits << 16, l[2].bits | l[3].bits << 16);
    });
}

// Of the operands that are split in tiles of columns; launched as split_operands, before it.
extern "C" __global__ void __launch_bounds__(kThreads) find_largest(const SplitParams p) {
    const bool is_a = blockIdx.x < p.a_blocks;
    const Operand operand = is_a ? p.a : p.b;
    kw::griddepcontrol_wait();
    if (operand.layout == Layout::kColumnTiles) find_largest_in_tile(operand, is_a ? blockIdx.x : blockIdx.x - p.a_blocks);
}

// Both operands of a product.
extern "C" __global__ void __launch_bounds__(kThreads) split_operands(const SplitParams p) {
    const bool is_a = blockIdx.x < p.a_blocks;
    const Operand operand = is_a ? p.a : p.b;
    const int block = is_a ? blockIdx.x : blockIdx.x - p.a_blocks;
    kw::griddepcontrol_wait();
    switch (operand.layout) {
        case Layout::kBlockRows: return split_rows<kThreads>(operand, block, p.batches);
        case Layout::kWarpRows: return split_rows<32>(operand, block, p.batches);
        case Layout::kColumns: return split_columns(operand, block);
        case Layout::kColumnTiles: return split_column_tile(operand, (is_a ? p.a_blocks : gridDim.x - p.a_blocks) - 1 - block);
        case Layout::kNone: {
            const int row = block * kThreads + threadIdx.x;
            if (row < p.batches * operand.rows) operand.inverse[row] = 1.0f;
        }
    }
}
