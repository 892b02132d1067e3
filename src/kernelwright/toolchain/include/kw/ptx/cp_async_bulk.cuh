// Copies of contiguous bytes from global to shared memory by TMA (sm_90 and later).
// PTX ISA, "cp.async.bulk". Addresses and sizes are multiples of 16 bytes.
#pragma once

#include "kw/ptx/shared.cuh"

namespace kw {

// Counts its bytes at an mbarrier.
__device__ __forceinline__ void cp_async_bulk(void* smem, const void* gmem, unsigned bytes, unsigned long long* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     smem_u32(smem)),
                 "l"(gmem), "r"(bytes), "r"(smem_u32(barrier))
                 : "memory");
}

}  // namespace kw
