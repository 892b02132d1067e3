// Stream-K: every SM gets the same amount of work; tiles of the last wave are split along K and their parts added.
//
// rung: question   What does the last wave of tiles cost?
// rung: hypothesis 512 tiles on 132 SMs take four waves, the last of 116; 32 tiles leave 100 SMs idle. The tiles of the
// rung: hypothesis last two waves are split into k-tiles and distributed evenly, one or two partial tiles per block.
// rung: hypothesis The partial tiles go through the L2, and a second kernel adds them in a fixed order, so results are
// rung: hypothesis deterministic. It pays if the idle time exceeds about ten microseconds. 1.03 times faster at 4096,
// rung: hypothesis three times at 1024.
// rung: next       At 8192 the GPU draws its limit of 700 W: what remains is fewer, larger or other operations, such as
// rung: next       three FP16 products on tensor cores.
//
// kw: entry  gemm_stream_k
// kw: dims   a: float32[M, K]; b: float32[K, N]; c: float32[M, N]
// kw: out    out: float32[M, N]
// kw: temp   workspace: float32[2 * sms, 128 * 256]
// kw: let    tiles = cdiv(M, 128) * cdiv(N, 256)
// kw: let    split = min(1, tiles % sms) * min(1, max(0, (sms - tiles % sms) * K - 74 * sms))
// kw: grid   sms
// kw: block  256
// kw: shared 2 * 16384 + 3 * 16 * 256 * 4
// kw: args   a, b, c, out, workspace, M, N, K, alpha, beta
//
// kw: entry  stream_k_fixup
// kw: grid   32 * split, tiles % sms + sms * min(1, tiles // sms)
// kw: block  256
// kw: args   workspace, c, out, M, N, K, alpha, beta, sms

#define NUM_STAGES 3  // best of two to five here; without stream-K, four

#include "kw/scheduler/stream_k.cuh"
#include "mainloop.cuh"

#define FIXUP_COST_K 74  // steps of k that the idle SMs could compute in the time of the fixup

// The last waves are split if the idle SMs could compute more than the fixup costs.
__device__ __forceinline__ kw::StreamKSchedule make_schedule(const GemmParams& p, int num_blocks) {
    const int tiles = p.tiles_n() * p.tiles_m(), idle = num_blocks - tiles % num_blocks;
    const bool pays = (long long)idle * p.K > FIXUP_COST_K * num_blocks;
    return {tiles, p.k_tiles(), num_blocks, pays ? kw::last_waves(tiles, num_blocks) : 0};
}

// This thread's slot for a partial tile in the workspace; a block has two: for the start of a tile and for its end.
__device__ __forceinline__ float4* partial_ptr(float* workspace, int block, bool starts_tile) {
    return reinterpret_cast<float4*>(workspace) + (2 * block + starts_tile) * (BM * BN / 4) + threadIdx.x;
}

template <bool aligned>
__device__ __forceinline__ void compute(const GemmParams& p, float* workspace) {
    for (int index = 0;; ++index) {
        const kw::StreamKTile work(index, blockIdx.x, make_schedule(p, gridDim.x));
        if (work.k_end == 0) break;
        float acc[TM][TN] = {};
        mainloop<aligned>(p, work.tile, work.k_begin, work.k_end, acc);
        kw::hide_from_optimizer(index);  // recompute the work tile: kept in registers, it would slow the loop
        const kw::StreamKTile done(index, blockIdx.x, make_schedule(p, gridDim.x));
        const bool is_full_tile = done.k_begin == 0 && done.k_end == p.k_tiles();
        float4* const my_partial = partial_ptr(workspace, blockIdx.x, done.k_begin == 0);
        const ThreadTile thread_tile(threadIdx.x);
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; j += 4) {
                const float4 value = make_float4(p.alpha * acc[i][j], p.alpha * acc[i][j + 1],
                                                 p.alpha * acc[i][j + 2], p.alpha * acc[i][j + 3]);
                if (is_full_tile) {
                    store_with_beta<aligned>(p, p.first_row(done.tile) + thread_tile.row(i),
                                             p.first_column(done.tile) + thread_tile.column(j), value);
                } else {
                    my_partial[(i * TN + j) / 4 * THREADS] = value;
                }
            }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm_stream_k(const float* a, const float* b, const float* c, float* out, float* workspace, int M, int N, int K,
                 float alpha, float beta) {
    const GemmParams p = {a, b, c, out, M, N, K, alpha, beta};
    if (p.is_aligned()) {
        compute<true>(p, workspace);
    } else {
        compute<false>(p, workspace);
    }
}

// A block adds one float4 of every thread's accumulators in a tile, in the order of the k-tiles.
extern "C" __global__ void __launch_bounds__(THREADS)
stream_k_fixup(float* workspace, const float* c, float* out, int M, int N, int K, float alpha, float beta, int sms) {
    const GemmParams p = {workspace, workspace, c, out, M, N, K, alpha, beta};
    const kw::StreamKSchedule schedule = make_schedule(p, sms);
    const int tile = blockIdx.y, begin = tile * schedule.k_tiles, end = begin + schedule.k_tiles;
    if (tile >= schedule.split_tiles) return;
    int block = schedule.block_of_k_tile(begin);
    if (schedule.first_k_tile(block + 1) >= end) return;  // one block computed the full tile
    const int i = blockIdx.x * 4 / TN, j = blockIdx.x * 4 % TN;
    float4 sum = {};
    for (; schedule.first_k_tile(block) < end; ++block) {
        const bool starts_tile = schedule.first_k_tile(block) <= begin;
        const float4 value = partial_ptr(workspace, block, starts_tile)[blockIdx.x * THREADS];
        sum.x += value.x;
        sum.y += value.y;
        sum.z += value.z;
        sum.w += value.w;
    }
    const ThreadTile thread_tile(threadIdx.x);
    const int row = p.first_row(tile) + thread_tile.row(i), column = p.first_column(tile) + thread_tile.column(j);
    if (N % 4 == 0 && (reinterpret_cast<unsigned long long>(c) | reinterpret_cast<unsigned long long>(out)) % 16 == 0) {
        store_with_beta<true>(p, row, column, sum);
    } else {
        store_with_beta<false>(p, row, column, sum);
    }
}
