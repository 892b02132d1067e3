// Copies from global into shared memory that run while the threads go on (sm_80 and later).
// PTX ISA, "cp.async": each thread waits for its own copies; others' are visible after a barrier.
#pragma once

namespace kw {

// The address of shared memory as PTX takes it.
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// 16 bytes past the L1; both addresses are multiples of 16. Where `there` is false zeros are written and nothing read.
__device__ __forceinline__ void copy_16(void* shared, const void* global, bool there = true) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(there ? 16 : 0));
}

// 4 bytes through the L1; both addresses are multiples of 4. Where `there` is false zeros are written.
__device__ __forceinline__ void copy_4(void* shared, const void* global, bool there = true) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(there ? 4 : 0));
}

// Closes a group of this thread's copies.
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;"); }

// Waits until no more than `left` of this thread's groups are under way.
template <int left>
__device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

}  // namespace kw
