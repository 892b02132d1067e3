// 8x8 matrices of 16-bit elements between shared memory and mma fragments (ldmatrix: sm_75, stmatrix: sm_90).
// PTX ISA, "ldmatrix", "stmatrix": thread 8k + r passes the address of row r (16 bytes) of matrix k; thread t holds
// elements (t / 4, 2 (t % 4)) and (t / 4, 2 (t % 4) + 1) of each matrix. `kw layout ldmatrix.x4` draws the layout.
#pragma once

#include "kw/ptx/shared.cuh"

namespace kw {

// Loads four matrices, one register each.
__device__ __forceinline__ void ldmatrix_x4(unsigned (&out)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(smem_u32(row)));
}

// Loads four matrices, each transposed.
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&out)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(smem_u32(row)));
}

#if __CUDA_ARCH__ >= 900
// Stores four matrices, one register each.
__device__ __forceinline__ void stmatrix_x4(void* row, const unsigned (&in)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_u32(row)), "r"(in[0]),
                 "r"(in[1]), "r"(in[2]), "r"(in[3])
                 : "memory");
}

// Stores four matrices, each transposed.
__device__ __forceinline__ void stmatrix_x4_trans(void* row, const unsigned (&in)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_u32(row)),
                 "r"(in[0]), "r"(in[1]), "r"(in[2]), "r"(in[3])
                 : "memory");
}
#endif

}  // namespace kw
