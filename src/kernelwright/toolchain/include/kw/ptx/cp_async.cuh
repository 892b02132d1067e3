// Asynchronous copies from global to shared memory (sm_80 and later).
// PTX ISA, "cp.async": a wait covers the thread's own copies; those of other threads are visible after a barrier.
#pragma once

#include "kw/ptx/shared.cuh"

namespace kw {

// Copies 16 bytes, bypassing L1; both addresses must be 16-byte aligned. If `pred` is false, writes zeros and reads
// nothing.
__device__ __forceinline__ void cp_async_cg_16(void* smem, const void* gmem, bool pred = true) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_u32(smem)), "l"(gmem), "r"(pred ? 16 : 0));
}

// Copies 4 bytes through L1; both addresses must be 4-byte aligned. If `pred` is false, writes zeros and reads nothing.
__device__ __forceinline__ void cp_async_ca_4(void* smem, const void* gmem, bool pred = true) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(smem_u32(smem)), "l"(gmem), "r"(pred ? 4 : 0));
}

#if __CUDA_ARCH__ >= 800
// Arrives at an mbarrier when this thread's copies so far are complete; one of the arrivals that the mbarrier expects.
__device__ __forceinline__ void cp_async_mbarrier_arrive_noinc(unsigned long long* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(smem_u32(barrier)) : "memory");
}
#endif

// Commits this thread's copies so far as a group.
__device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;"); }

// Waits until at most N of this thread's most recent groups are pending.
template <int N>
__device__ __forceinline__ void cp_async_wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

}  // namespace kw
