// What the blocks of a cluster tell each other through shared memory (sm_90 and later).
// PTX ISA, "mapa", "st.async", "mbarrier", "barrier.cluster".
//
// Waits are of the block's scope: what `store_async` brings is visible where its barrier is complete. A wait of the
// cluster's scope would empty the L1 of the multiprocessor each time (CCTL.IVALL, in every warp).
#pragma once

#include "kw/cp_async.cuh"

namespace kw {

// The same place in the shared memory of another block of the cluster.
__device__ __forceinline__ unsigned in_block(const void* shared, unsigned block) {
    unsigned address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(shared)), "r"(block));
    return address;
}

// A barrier in shared memory, complete each time that somebody has said how many bytes it expects and these have come.
__device__ __forceinline__ void barrier_init(unsigned long long* barrier) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void barrier_expect(unsigned long long* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// All threads: barriers made before are seen by the cluster's other blocks once these have waited.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("fence.mbarrier_init.release.cluster;\nbarrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

// Stores at an address of `in_block`, and counts the bytes at a barrier of the same block.
__device__ __forceinline__ void store_async(unsigned address, float value, unsigned barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(address),
                 "f"(value), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void store_async(unsigned address, float2 value, unsigned barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(address),
                 "f"(value.x), "f"(value.y), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void store_async(unsigned address, float4 value, unsigned barrier) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
        "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(barrier)
        : "memory");
}

// Waits until a barrier is complete once more: `parity` is 0 for the first time, 1 for the second, and so on in turns.
__device__ __forceinline__ void barrier_wait(unsigned long long* barrier, unsigned parity) {
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, 0x989680;\n@!done bra AGAIN;\n}" ::
            "r"(shared_address(barrier)), "r"(parity)
        : "memory");
}

}  // namespace kw
