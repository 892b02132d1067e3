// One block per SM for the whole product: the producer loads the next tile while the consumers store the last.
//
// rung: question   What do the start of a block and its epilogue cost?
// rung: hypothesis A block with 197 KiB of shared memory is alone on its SM. Filling its ring takes about 1.5 us,
// rung: hypothesis storing its sums about 2 us, and at 8192 it multiplies for 60 us. Persistent blocks fill the ring
// rung: hypothesis for the next tile during the epilogue, and set up once. 1.04 times faster at 8192.
// rung: next       Measured: 1.01 times faster at 8192, 1.03 at 4096: stores still keep a consumer from its next tile.
// rung: next       16384 loses 4 %: with 128 columns of tiles, blocks that share a row of A drift apart. Share loads.
//
// kw: entry  gemm_persistent
// kw: dims   a: bfloat16[M, K]; b: bfloat16[N, K]
// kw: out    out: bfloat16[M, N]
// kw: map    a_map: a[128, 64]
// kw: map    b_map: b[256, 64]
// kw: grid   min(sms, cdiv(M, 128) * cdiv(N, 256))
// kw: block  384
// kw: shared 4 * 49152 + 128
// kw: args   a_map, b_map, out, M, N, K

#include "kw/ptx/setmaxnreg.cuh"
#include "tile.cuh"

constexpr int kBlockM = 128, kBlockN = 256, kNumConsumers = 2, kNumStages = 4;
constexpr int kBytesA = kBlockM * kRowBytes, kStageBytes = (kBlockM + kBlockN) * kRowBytes;

extern "C" __global__ void __launch_bounds__(128 * (kNumConsumers + 1), 1)
gemm_persistent(const __grid_constant__ kw::TensorMap a_map, const __grid_constant__ kw::TensorMap b_map,
                kw::bf16* out, int M, int N, int K) {
    extern __shared__ __align__(1024) unsigned char stages[];
    auto& barriers = *reinterpret_cast<kw::PipelineBarriers<kNumStages>*>(stages + kNumStages * kStageBytes);
    const int k_tiles = ceil_div(K, kBlockK);
    const int tiles_n = ceil_div(N, kBlockN), num_tiles = ceil_div(M, kBlockM) * tiles_n;
    if (threadIdx.x == 0) {
        barriers.init<kNumConsumers>();
        kw::fence_mbarrier_init();
    }
    __syncthreads();
    kw::PipelineState<kNumStages> state;
    if (threadIdx.x < 128) {
        kw::setmaxnreg_dec<24>();
        if (threadIdx.x == 0) {
            for (int tile = blockIdx.x; tile < num_tiles; tile += gridDim.x) {
                const int row = tile / tiles_n * kBlockM, column = tile % tiles_n * kBlockN;
                for (int k_tile = 0; k_tile < k_tiles; ++k_tile, state.advance()) {
                    unsigned char* const stage = stages + state.stage * kStageBytes;
                    unsigned long long* const full = &barriers.full[state.stage];
                    kw::mbarrier_wait_parity(&barriers.empty[state.stage], state.parity ^ 1);
                    kw::mbarrier_arrive_expect_tx(full, kStageBytes);
                    kw::cp_async_bulk_tensor_2d(stage, &a_map, full, k_tile * kBlockK, row);
                    kw::cp_async_bulk_tensor_2d(stage + kBytesA, &b_map, full, k_tile * kBlockK, column);
                }
            }
        }
    } else {
        kw::setmaxnreg_inc<240>();
        const int consumer = threadIdx.x / 128 - 1;
        for (int tile = blockIdx.x; tile < num_tiles; tile += gridDim.x) {
            const int row = tile / tiles_n * kBlockM, column = tile % tiles_n * kBlockN;
            float acc[1][kBlockN / 2];
            if (k_tiles == 0) zero(acc);
            int previous = 0;
            for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
                const unsigned char* const stage = stages + state.stage * kStageBytes;
                kw::mbarrier_wait_parity(&barriers.full[state.stage], state.parity);
                kw::wgmma_fence();
                multiply<1, kBlockN>(acc, stage + Matrix::row_offset(64 * consumer), stage + kBytesA, k_tile > 0);
                kw::wgmma_commit_group();
                kw::wgmma_wait_group<1>();
                if (k_tile > 0 && threadIdx.x % 128 == 0) kw::mbarrier_arrive(&barriers.empty[previous]);
                previous = state.stage;
                state.advance();
            }
            kw::wgmma_wait_group<0>();
            if (k_tiles > 0 && threadIdx.x % 128 == 0) kw::mbarrier_arrive(&barriers.empty[previous]);
            store_fragment<kBlockN>(out, acc[0], row + 64 * consumer, column, M, N);
        }
    }
}
