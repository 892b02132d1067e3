// Distributed shared memory and barriers of a thread block cluster (sm_90 and later).
// PTX ISA, "mapa", "st.async", "barrier.cluster".
#pragma once

#include "kw/ptx/mbarrier.cuh"

namespace kw {

__device__ __forceinline__ unsigned cluster_ctarank() {
    unsigned rank;
    asm("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Address of the same shared memory location in another block of the cluster.
__device__ __forceinline__ unsigned mapa(const void* smem, unsigned block) {
    unsigned address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(smem_u32(smem)), "r"(block));
    return address;
}

// For all threads of the cluster: after the wait, mbarriers initialized before the arrive are visible to all blocks.
__device__ __forceinline__ void barrier_cluster_arrive_init() {
    asm volatile("fence.mbarrier_init.release.cluster;\nbarrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void barrier_cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
__device__ __forceinline__ void barrier_cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

// Loads from an address from `mapa`, a multiple of 16.
__device__ __forceinline__ float4 ld_shared_cluster_v4(unsigned address) {
    float4 value;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "r"(address)
                 : "memory");
    return value;
}

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

}  // namespace kw
