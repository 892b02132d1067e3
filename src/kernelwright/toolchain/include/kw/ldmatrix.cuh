// 8 x 8 matrices of 16-bit elements between shared memory and the fragments of mma (ldmatrix: sm_75, stmatrix: sm_90).
// PTX ISA, "ldmatrix", "stmatrix": thread 8 k + r gives the address of row r (16 bytes) of matrix k; thread t holds the
// two elements at column 2 (t % 4) of row t / 4 of each. `kw layout ldmatrix.x4` draws it.
#pragma once

#include "kw/cp_async.cuh"

namespace kw {

// Four matrices, one register of each.
__device__ __forceinline__ void load_4(unsigned (&out)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row)));
}

// Four matrices, each transposed on its way.
__device__ __forceinline__ void load_4_transposed(unsigned (&out)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row)));
}

#if __CUDA_ARCH__ >= 900
// Four matrices, one register of each, into shared memory.
__device__ __forceinline__ void store_4(void* row, const unsigned (&in)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
                 "r"(in[0]), "r"(in[1]), "r"(in[2]), "r"(in[3])
                 : "memory");
}
#endif

}  // namespace kw
