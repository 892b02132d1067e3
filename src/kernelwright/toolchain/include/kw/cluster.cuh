// Distributed shared memory and mbarriers of a thread block cluster (sm_90 and later).
// PTX ISA, "mapa", "st.async", "mbarrier", "barrier.cluster".
//
// Waits have CTA scope: data of `st_async` is visible to the block whose mbarrier it completes. A wait with cluster
// scope would invalidate the SM's L1 each time (CCTL.IVALL, in every warp).
#pragma once

#include "kw/cp_async.cuh"

namespace kw {

// Address of the same shared memory location in another block of the cluster.
__device__ __forceinline__ unsigned mapa(const void* smem, unsigned block) {
    unsigned address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(smem_u32(smem)), "r"(block));
    return address;
}

// An mbarrier with one arrival per phase: its phase completes after arrive_expect_tx and that many bytes of stores.
__device__ __forceinline__ void mbarrier_init(unsigned long long* barrier) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(smem_u32(barrier)) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive_expect_tx(unsigned long long* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(smem_u32(barrier)), "r"(bytes) : "memory");
}

// For all threads of the cluster: after the wait, mbarriers initialized before the arrive are visible to all blocks.
__device__ __forceinline__ void barrier_cluster_arrive_init() {
    asm volatile("fence.mbarrier_init.release.cluster;\nbarrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void barrier_cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

// Stores to an address from `mapa` and counts the bytes at an mbarrier of the same block.
__device__ __forceinline__ void st_async(unsigned address, float value, unsigned barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(address),
                 "f"(value), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void st_async(unsigned address, float2 value, unsigned barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(address),
                 "f"(value.x), "f"(value.y), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void st_async(unsigned address, float4 value, unsigned barrier) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
        "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(barrier)
        : "memory");
}

// Waits for the completion of the phase with this parity: 0 for the first phase, 1 for the second, alternating.
__device__ __forceinline__ void mbarrier_wait_parity(unsigned long long* barrier, unsigned parity) {
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, 0x989680;\n@!done bra AGAIN;\n}" ::
            "r"(smem_u32(barrier)), "r"(parity)
        : "memory");
}

}  // namespace kw
