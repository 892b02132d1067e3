// Copies of tiles between global and shared memory by TMA, described by a tensor map (sm_90 and later).
// PTX ISA, "cp.async.bulk.tensor". Shared memory is 128-byte aligned, 1024-byte aligned with a 128-byte swizzle.
// Elements outside of the tensor are read as zeros and not written.
#pragma once

#include "kw/ptx/shared.cuh"

namespace kw {

// The driver's CUtensorMap, encoded on the host; passed by value in a `__grid_constant__` parameter.
struct alignas(64) TensorMap {
    unsigned char bytes[128];
};

__device__ __forceinline__ void prefetch_tensormap(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Loads the tile whose first element is at (x, y), x being the contiguous dimension, and counts its bytes at an mbarrier.
__device__ __forceinline__ void cp_async_bulk_tensor_2d(void* smem, const TensorMap* map, unsigned long long* barrier,
                                                        int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            smem_u32(smem)),
        "l"(map), "r"(smem_u32(barrier)), "r"(x), "r"(y)
        : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_2d_multicast(void* smem, const TensorMap* map,
                                                                  unsigned long long* barrier, unsigned short blocks,
                                                                  int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%4, %5}], [%2], %3;" ::"r"(smem_u32(smem)),
        "l"(map), "r"(smem_u32(barrier)), "h"(blocks), "r"(x), "r"(y)
        : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_2d_store(const TensorMap* map, const void* smem, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
                 "r"(smem_u32(smem)), "r"(x), "r"(y)
                 : "memory");
}

// The same in three dimensions.
__device__ __forceinline__ void cp_async_bulk_tensor_3d(void* smem, const TensorMap* map, unsigned long long* barrier,
                                                        int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
            "r"(smem_u32(smem)),
        "l"(map), "r"(smem_u32(barrier)), "r"(x), "r"(y), "r"(z)
        : "memory");
}

// Multicast: written at the same address in every block of the cluster whose bit is set, at each block's own mbarrier.
__device__ __forceinline__ void cp_async_bulk_tensor_3d_multicast(void* smem, const TensorMap* map,
                                                                  unsigned long long* barrier, unsigned short blocks,
                                                                  int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(smem_u32(smem)),
        "l"(map), "r"(smem_u32(barrier)), "h"(blocks), "r"(x), "r"(y), "r"(z)
        : "memory");
}

// Stores a tile; part of the thread's current bulk group.
__device__ __forceinline__ void cp_async_bulk_tensor_3d_store(const TensorMap* map, const void* smem, int x, int y,
                                                              int z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(smem_u32(smem)), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

__device__ __forceinline__ void cp_async_bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until shared memory of all but the thread's N most recent bulk groups has been read.
template <int N>
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

}  // namespace kw
