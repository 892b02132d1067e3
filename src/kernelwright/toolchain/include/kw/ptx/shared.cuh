// Addresses in shared memory, election of a thread, and fences between the generic and the asynchronous proxy.
// PTX ISA, "cvta", "elect.sync", "fence.proxy.async", "bar.sync".
#pragma once

namespace kw {

// 32-bit shared memory address, as PTX operands take it.
__device__ __forceinline__ unsigned smem_u32(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

#if __CUDA_ARCH__ >= 900
// True in exactly one thread of a converged warp.
__device__ __forceinline__ bool elect_one_sync() {
    unsigned is_elected;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(is_elected));
    return is_elected;
}

// Orders this thread's ordinary stores to shared memory before later accesses by TMA and wgmma. Every thread that
// stored executes it, and then a barrier.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#endif

// Barrier among `num_threads` threads of a block; ids 1 to 15, since __syncthreads uses 0.
__device__ __forceinline__ void bar_sync(int id, int num_threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(num_threads) : "memory");
}

// Arrives at the same barrier without waiting.
__device__ __forceinline__ void bar_arrive(int id, int num_threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(num_threads) : "memory");
}

}  // namespace kw
