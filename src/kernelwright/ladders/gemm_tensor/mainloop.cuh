// Main loop of the last rungs: a ring of swizzled stages of 64 along K, fragments double-buffered in registers, and few
// bounds checks: rows beyond the last repeat it, and only copies beyond K are replaced by zeros.
#pragma once

#include "kw/mma/fragments.cuh"
#include "kw/ptx/cp_async.cuh"
#include "kw/ptx/cvt.cuh"
#include "kw/ptx/ldmatrix.cuh"
#include "kw/ptx/mma.cuh"
#include "kw/scheduler/tile_scheduler.cuh"

constexpr int kBandRows = 1024;  // of tiles that run at the same time; 512 and 2,048 are as fast at 8192
constexpr int kBlockK = 64, kStepK = 16, kNumSteps = kBlockK / kStepK;

__device__ __forceinline__ unsigned char* dynamic_shared() {
    extern __shared__ __align__(1024) unsigned char bytes[];
    return bytes;
}

struct GemmParams {
    const kw::bf16 *a, *b;
    kw::bf16* out;
    int M, N, K;
    __device__ int k_tiles() const { return max(1, (K + kBlockK - 1) / kBlockK); }  // one of zeros if K is 0
    template <class T>
    __device__ int tiles_m() const {
        return (M + T::kBlockM - 1) / T::kBlockM;
    }
    template <class T>
    __device__ int tiles_n() const {
        return (N + T::kBlockN - 1) / T::kBlockN;
    }
    template <class T>
    __device__ int tiles() const {
        return tiles_m<T>() * tiles_n<T>();
    }
};

struct TileOrigin {
    int row, column;
};
// Tiles in bands of kBandRows rows, column by column: those that run at the same time share their operands in the L2.
template <class T>
__device__ __forceinline__ TileOrigin grouped_tile(const GemmParams& p, int tile) {
    const kw::TileIndex index =
        kw::grouped_raster(tile, p.template tiles_m<T>(), p.template tiles_n<T>(), kBandRows / T::kBlockM);
    return {index.m * T::kBlockM, index.n * T::kBlockN};
}

// Sizes of a block's tile, of its warps' tiles, and of its ring.
template <int kBlockM_, int kBlockN_, int kWarpM_, int kWarpN_, int kNumStages_>
struct TileShape {
    static constexpr int kBlockM = kBlockM_, kBlockN = kBlockN_, kWarpM = kWarpM_, kWarpN = kWarpN_;
    static constexpr int kNumStages = kNumStages_, kWarpsN = kBlockN / kWarpN;
    static constexpr int kThreads = kBlockM / kWarpM * kWarpsN * 32;
    static constexpr int kTilesM = kWarpM / 16, kTilesN = kWarpN / 8;  // mma per step of K
    static constexpr int kBytesA = kBlockM * kw::kTileRowBytes;
    static constexpr int kStageBytes = (kBlockM + kBlockN) * kw::kTileRowBytes;
    static constexpr int kRingBytes = kNumStages * kStageBytes;
    static constexpr int kCopyRows = kThreads / 8;  // rows that the block copies at once
    static constexpr int kCopiesA = kBlockM / kCopyRows, kCopiesB = kBlockN / kCopyRows;
    using Accumulators = float[kTilesM][kTilesN][4];

    static __device__ int warp_m() { return static_cast<int>(threadIdx.x) / 32 / kWarpsN * kWarpM; }
    static __device__ int warp_n() { return static_cast<int>(threadIdx.x) / 32 % kWarpsN * kWarpN; }
};

// This thread's copies of a tile's operands, one 16-byte chunk of several rows for each k-tile.
template <class T>
struct TileLoader {
    const char *a, *b;  // the chunk in the first row
    unsigned rows_a[T::kCopiesA], rows_b[T::kCopiesB];  // bytes from there to each row
    int k_left;

    __device__ void start(const GemmParams& p, int first_row, int first_column) {
        const int row = threadIdx.x / 8, k = threadIdx.x % 8 * 8;
        a = reinterpret_cast<const char*>(p.a + (long long)first_row * p.K + k);
        b = reinterpret_cast<const char*>(p.b + (long long)first_column * p.K + k);
        k_left = p.K - k;
#pragma unroll
        for (int i = 0; i < T::kCopiesA; ++i)
            rows_a[i] = min(row + i * T::kCopyRows, p.M - 1 - first_row) * 2u * p.K;
#pragma unroll
        for (int i = 0; i < T::kCopiesB; ++i)
            rows_b[i] = min(row + i * T::kCopyRows, p.N - 1 - first_column) * 2u * p.K;
    }

    // Copies part `part` of `kParts` of the next k-tile.
    template <int kParts>
    __device__ void copy(unsigned char* to, int part) const {
        constexpr int kCopies = T::kCopiesA + T::kCopiesB;
        auto copy_row = [&](int i, const char* from) {
            if (i * kParts / kCopies == part)
                kw::cp_async_cg_16(to + i * T::kCopyRows * kw::kTileRowBytes, from, k_left > 0);
        };
#pragma unroll
        for (int i = 0; i < T::kCopiesA; ++i) copy_row(i, a + rows_a[i]);
#pragma unroll
        for (int i = 0; i < T::kCopiesB; ++i) copy_row(T::kCopiesA + i, b + rows_b[i]);
    }

    __device__ void count(int) {}  // of k-tiles; a loader of several tiles changes to the next one
    __device__ void advance() {
        a += kBlockK * 2;
        b += kBlockK * 2;
        k_left -= kBlockK;
    }
};

// All warps wait for each other once per k-tile: the next stage is complete, and the one before is free.
template <class T>
struct BlockSync {
    static constexpr int kAhead = T::kNumStages - 1;  // k-tiles that copies are ahead

    __device__ void wait_free(int) {}
    __device__ void copied(int) { kw::cp_async_commit_group(); }
    __device__ void wait_full(int) {
        kw::cp_async_wait_group<kAhead - 1>();
        __syncthreads();
    }
    __device__ void read(int) {}
};

// The ring, and the fragments of a warp. `Loader` copies, `Sync` waits for full and for free stages.
template <class T, class Loader = TileLoader<T>, class Sync = BlockSync<T>>
struct Mainloop {
    Loader& loader;
    Sync sync;
    unsigned char* ring;
    int copy_to, lane_a, lane_b;  // offsets in a stage
    int read_stage = 0, write_stage = 0;
    unsigned frag_a[2][T::kTilesM][4], frag_b[2][T::kTilesN / 2][4];

    __device__ Mainloop(Loader& loader, unsigned char* ring, Sync sync = {}) : loader(loader), sync(sync), ring(ring) {
        const kw::LdmatrixLane a = kw::ldmatrix_lane_a(threadIdx.x % 32), b = kw::ldmatrix_lane_b(threadIdx.x % 32);
        copy_to = kw::swizzle_128b(threadIdx.x / 8, threadIdx.x % 8);
        lane_a = kw::swizzle_128b(T::warp_m() + a.row, a.chunk);
        lane_b = T::kBytesA + kw::swizzle_128b(T::warp_n() + b.row, b.chunk);
    }

    static __device__ int next_stage(int stage) { return stage == T::kNumStages - 1 ? 0 : stage + 1; }

    template <int kParts>
    __device__ void copy(int part) {
        loader.template copy<kParts>(ring + write_stage * T::kStageBytes + copy_to, part);
    }

    __device__ void end_copy() {
        sync.copied(write_stage);
        write_stage = next_stage(write_stage);
        loader.advance();
    }

    // Starts the first copies, waits for the first k-tile and loads its first fragments.
    __device__ void fill() {
#pragma unroll
        for (int i = 0; i < Sync::kAhead; ++i) {
            copy<1>(0);
            end_copy();
            loader.count(1);
        }
        sync.wait_full(0);
#pragma unroll
        for (int i = 0; i < T::kTilesM + T::kTilesN / 2; ++i) load_fragment(0, 0, i);
    }

    // Waits for the copies after the last k-tile, which write zeros.
    __device__ void drain() {
        kw::cp_async_commit_group();
        kw::cp_async_wait_group<0>();
    }

    // Loads fragment `i` of the next step: those of B come first, since the first row of mma needs them all.
    __device__ void load_fragment(int to, int step, int i) {
        constexpr int kLoadsB = T::kTilesN / 2, kRowBytes = 16 * kw::kTileRowBytes;
        const int stage = read_stage * T::kStageBytes, flipped = step * 32;  // a step of K flips two bits of the chunk
        if (i < kLoadsB) {
            kw::ldmatrix_x4(frag_b[to][i % kLoadsB], ring + ((stage + lane_b) ^ flipped) + i * kRowBytes);
        } else {
            const int m = i - kLoadsB;
            kw::ldmatrix_x4(frag_a[to][m % T::kTilesM], ring + ((stage + lane_a) ^ flipped) + m * kRowBytes);
        }
    }

    // Row `m` of the products of one step.
    __device__ void multiply_row(typename T::Accumulators& acc, int from, int m) {
#pragma unroll
        for (int i = 0; i < T::kTilesN; ++i) {
            const int n = m % 2 ? T::kTilesN - 1 - i : i;  // alternating, so that the last B is used again
            const unsigned own[2] = {frag_b[from][n / 2][n % 2 * 2], frag_b[from][n / 2][n % 2 * 2 + 1]};
            kw::mma_m16n8k16_bf16(acc[m][n], frag_a[from][m], own);
        }
    }

    // Accumulates k-tiles, and loads the first fragments of the one after them. Loads are spread over the rows of
    // products, and copies over every other row: each group of LDGSTS costs three dummy LDS, so that a group per row is
    // 4 % slower.
    __device__ void run(typename T::Accumulators& acc, int k_tiles) {
        constexpr int kLoads = T::kTilesM + T::kTilesN / 2;
        constexpr int kCopyParts = (kNumSteps - 1) * T::kTilesM / 2;
#pragma unroll 1
        for (; k_tiles > 0; --k_tiles) {
            sync.wait_free(write_stage);
#pragma unroll
            for (int step = 0; step < kNumSteps; ++step) {
                if (step == kNumSteps - 1) {
                    end_copy();
                    const int last = read_stage;
                    read_stage = next_stage(read_stage);
                    sync.wait_full(read_stage);
                    sync.read(last);
                }
#pragma unroll
                for (int m = 0; m < T::kTilesM; ++m) {
#pragma unroll
                    for (int i = 0; i < kLoads; ++i)
                        if (i * T::kTilesM / kLoads == m) load_fragment((step + 1) % 2, (step + 1) % kNumSteps, i);
                    if (step < kNumSteps - 1 && m % 2 == 0) copy<kCopyParts>((step * T::kTilesM + m) / 2);
                    multiply_row(acc, step % 2, m);
                }
            }
        }
    }
};
