// mbarriers in shared memory: a phase completes after the expected arrivals and bytes (sm_90 and later).
// PTX ISA, "mbarrier".
//
// Waits have CTA scope: data of `st_async` or TMA is visible to the block whose mbarrier it completes. A wait with
// cluster scope would invalidate the SM's L1 each time (CCTL.IVALL, in every warp).
#pragma once

#include "kw/ptx/shared.cuh"

namespace kw {

template <int kArrivals = 1>
__device__ __forceinline__ void mbarrier_init(unsigned long long* barrier) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(smem_u32(barrier)), "n"(kArrivals) : "memory");
}

// Makes initialized mbarriers visible to the cluster and to TMA; a barrier of the block or cluster follows.
__device__ __forceinline__ void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void mbarrier_arrive(unsigned long long* barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(smem_u32(barrier)) : "memory");
}

// Arrives at the mbarrier at the same address in another block of the cluster. Its order has CTA scope: a release at
// cluster scope waits for all outstanding accesses of the thread (MEMBAR) and costs a quarter of the speed of a GEMM.
__device__ __forceinline__ void mbarrier_arrive_cluster(unsigned long long* barrier, unsigned block) {
    asm volatile(
        "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(smem_u32(barrier)),
        "r"(block)
        : "memory");
}

__device__ __forceinline__ void mbarrier_arrive_expect_tx(unsigned long long* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(smem_u32(barrier)), "r"(bytes) : "memory");
}

// Whether the phase with this parity has completed: 0 for the first phase, 1 for the second, alternating. Suspends the
// thread for a while if not.
__device__ __forceinline__ bool mbarrier_try_wait_parity(unsigned long long* barrier, unsigned parity) {
    unsigned done;
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, 0x989680;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(smem_u32(barrier)), "r"(parity)
        : "memory");
    return done;
}

// Waits for the completion of the phase with this parity.
__device__ __forceinline__ void mbarrier_wait_parity(unsigned long long* barrier, unsigned parity) {
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, 0x989680;\n@!done bra AGAIN;\n}" ::
            "r"(smem_u32(barrier)), "r"(parity)
        : "memory");
}

}  // namespace kw
