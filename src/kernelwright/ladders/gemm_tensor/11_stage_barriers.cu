// Warps wait for stages instead of for each other: an mbarrier per stage for full and one for free.
//
// rung: question   What do the warps lose that wait for each other once per k-tile?
// rung: hypothesis A barrier lets the tensor cores run dry: the first warp has nothing queued while it waits for the last
// rung: hypothesis one, 30 to 60 cycles of 1,536 for a k-tile. With an mbarrier per stage, and copies one k-tile less
// rung: hypothesis ahead, a warp may be a k-tile ahead of another, and they stop issuing the same kind of instruction at
// rung: hypothesis the same time: 1.03 times faster.
// rung: next       mma.sync itself.
//
// kw: entry  tensor_stage_barriers_large
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: let    large = cdiv(M, 128) * cdiv(N, 256)
// kw: let    use_large = min(1, 4 * large // (3 * sms))
// kw: grid   min(sms, large * use_large)
// kw: block  256
// kw: shared 4 * (128 + 256) * 128 + 8 * 2048 + 64
// kw: args   a, b, out, M, N, K
//
// kw: entry  tensor_stage_barriers_small
// kw: grid   cdiv(M, 64) * cdiv(N, 128) * (1 - use_large)
// kw: block  128
// kw: shared 4 * (64 + 128) * 128 + 4 * 2048 + 64
// kw: args   a, b, out, M, N, K

#include "epilogue.cuh"
#include "tile_stream.cuh"
#include "kw/ptx/mbarrier.cuh"

#ifndef LARGE_SHAPE
#define LARGE_SHAPE 128, 256, 64, 64, 4
#define SMALL_SHAPE 64, 128, 32, 64, 4
#endif

// An mbarrier for full and one for free stages each; copies are two k-tiles ahead of the reader.
template <class T>
struct StageSync {
    static constexpr int kAhead = T::kNumStages - 2;
    unsigned long long *full, *free;
    unsigned full_parity = 0, free_parity = 1;  // every stage is free in the first round

    __device__ static StageSync init(unsigned char* smem) {
        StageSync sync = {reinterpret_cast<unsigned long long*>(smem)};
        sync.free = sync.full + T::kNumStages;
        if (threadIdx.x == 0)
            for (int stage = 0; stage < T::kNumStages; ++stage) {
                kw::mbarrier_init<T::kThreads>(sync.full + stage);
                kw::mbarrier_init<T::kThreads / 32>(sync.free + stage);
            }
        __syncthreads();
        return sync;
    }
    __device__ void wait_free(int stage) { kw::mbarrier_wait_parity(free + stage, free_parity); }
    __device__ void copied(int stage) {
        kw::cp_async_mbarrier_arrive_noinc(full + stage);
        free_parity ^= stage == T::kNumStages - 1;
    }
    __device__ void wait_full(int stage) {
        kw::mbarrier_wait_parity(full + stage, full_parity);
        full_parity ^= stage == T::kNumStages - 1;
    }
    __device__ void read(int stage) {
        if (threadIdx.x % 32 == 0) kw::mbarrier_arrive(free + stage);
    }
};

template <class T>
__device__ __forceinline__ void compute(const GemmParams& p) {
    unsigned char* const ring = dynamic_shared();  // and 2,048 bytes per warp, and mbarriers
    TileStream<T> stream(p);
    const auto sync = StageSync<T>::init(ring + T::kRingBytes + T::kThreads / 32 * 2048);
    Mainloop<T, TileStream<T>, StageSync<T>> mainloop(stream, ring, sync);
    mainloop.fill();
    for (int tile = blockIdx.x; tile < p.template tiles<T>(); tile += gridDim.x) {
        typename T::Accumulators acc = {};
#pragma unroll 1
        for (int left = p.k_tiles(); left > 0;) {  // no branch in the main loop: it ends where copies change the tile
            const int k_tiles = min(left, stream.k_tiles);
            mainloop.run(acc, k_tiles);
            stream.count(k_tiles);
            left -= k_tiles;
        }
        const TileOrigin origin = grouped_tile<T>(p, tile);
        store_chunks<T>(acc, ring + T::kRingBytes + threadIdx.x / 32 * 2048, p, origin.row + T::warp_m(),
                        origin.column + T::warp_n());
    }
    mainloop.drain();
}

extern "C" __global__ void __launch_bounds__(TileShape<LARGE_SHAPE>::kThreads, 1)
tensor_stage_barriers_large(const kw::bf16* a, const kw::bf16* b, kw::bf16* out, int M, int N, int K) {
    compute<TileShape<LARGE_SHAPE>>({a, b, out, M, N, K});
}

extern "C" __global__ void __launch_bounds__(TileShape<SMALL_SHAPE>::kThreads, 2)
tensor_stage_barriers_small(const kw::bf16* a, const kw::bf16* b, kw::bf16* out, int M, int N, int K) {
    compute<TileShape<SMALL_SHAPE>>({a, b, out, M, N, K});
}
