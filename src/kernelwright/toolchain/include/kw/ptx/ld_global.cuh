// Operations that the compiler must not move. It sinks an ordinary load to its first use, where the threads then wait
// for it, and keeps in registers every value that it can reuse.
#pragma once

namespace kw {

// Loads 16 bytes of global memory that is read-only during the kernel; the address must be 16-byte aligned. If `pred`
// is false, reads nothing and leaves `value` unchanged.
__device__ __forceinline__ void ld_global_nc_v4(float4& value, const float* gmem, bool pred = true) {
    asm volatile("{.reg .pred p; setp.ne.s32 p, %5, 0; @p ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];}"
                 : "+f"(value.x), "+f"(value.y), "+f"(value.z), "+f"(value.w)
                 : "l"(gmem), "r"(static_cast<int>(pred)));
}

// Makes `value` opaque to the optimizer, which then recomputes what depends on it instead of keeping it in registers.
__device__ __forceinline__ void hide_from_optimizer(int& value) { asm volatile("" : "+r"(value)); }

}  // namespace kw
