// Registers per thread, changed while a kernel runs (sm_90a).
// PTX ISA, "setmaxnreg": executed by all warps of a warpgroup, with a multiple of 8. It is ignored (warning C7508) unless
// the kernel has `__launch_bounds__(threads, 1)`.
#pragma once

namespace kw {

template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace kw
