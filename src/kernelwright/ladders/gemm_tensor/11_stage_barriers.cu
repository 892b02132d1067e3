// Warps wait for stages instead of for each other: an mbarrier per stage for full and one for free.
//
// rung: question   What do the warps lose that wait for each other once per k-tile?
// rung: hypothesis A barrier lets the tensor cores run dry: the first warp has nothing queued while it waits for the
// rung: hypothesis last one, 30 to 60 cycles of 1,536 for a k-tile. With an mbarrier per stage, and copies one k-tile
// rung: hypothesis less ahead, a warp may be a k-tile ahead of another, and they stop issuing the same kind of
// rung: hypothesis instruction at the same time: 1.03 times faster.
// rung: next       1.01 to 1.02 times faster: no time at barriers, tensor cores busy for 83 % at 4096, whose last wave
// rung: next       leaves 3 % idle. What is left is mma.sync itself: at best one per 6.0 cycles and subcore, 2,731
// rung: next       FLOPs per cycle and SM, two thirds of the rate of wgmma. From registers alone that is 630 to 650
// rung: next       TFLOP/s, 0.81 to 0.83 of cuBLAS at 8192. And power: at the limit of 700 W mma.sync takes 1.1 pJ per
// rung: next       FLOP before any operand is loaded, this kernel 1.6, cuBLAS 1.05. Use wgmma, which reads operands
// rung: next       from shared memory itself: the ladder gemm_hopper.
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
// kw: shared 4 * (64 + 128) * 128
// kw: args   a, b, out, M, N, K

#include "kw/ptx/mbarrier.cuh"
#include "tile_stream.cuh"

using Large = TileShape<128, 256, 64, 64, 4>;
using Small = TileShape<64, 128, 32, 64, 4>;

// An mbarrier for full and one for free stages each; copies are two k-tiles ahead of the reader.
template <class T>
struct StageSync {
    static constexpr int kAhead = T::kNumStages - 2;
    unsigned long long *full, *free;
    unsigned full_parity = 0, free_parity = 1;  // every stage is free in the first round

    __device__ explicit StageSync(unsigned char* smem)
        : full(reinterpret_cast<unsigned long long*>(smem)), free(full + T::kNumStages) {
        if (threadIdx.x == 0)
            for (int stage = 0; stage < T::kNumStages; ++stage) {
                kw::mbarrier_init<T::kThreads>(full + stage);
                kw::mbarrier_init<T::kThreads / 32>(free + stage);
            }
        __syncthreads();
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

extern "C" __global__ void __launch_bounds__(Large::kThreads, 1)
tensor_stage_barriers_large(const kw::bf16* a, const kw::bf16* b, kw::bf16* out, int M, int N, int K) {
    compute_tiles<Large>({a, b, out, M, N, K}, StageSync<Large>(dynamic_shared() + kMultiTileBytes<Large>));
}

extern "C" __global__ void __launch_bounds__(Small::kThreads, 2)
tensor_stage_barriers_small(const kw::bf16* a, const kw::bf16* b, kw::bf16* out, int M, int N, int K) {
    compute_tile<Small>({a, b, out, M, N, K});
}
