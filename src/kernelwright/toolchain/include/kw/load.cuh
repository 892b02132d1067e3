// What the compiler must not undo. It moves an ordinary load down to its first use, where the threads then wait for it,
// and keeps in registers whatever it can use again.
#pragma once

namespace kw {

// 16 bytes of global memory that nobody writes meanwhile; the address is a multiple of 16. Where `there` is false
// nothing is read and `value` stays.
__device__ __forceinline__ void load_16(float4& value, const float* global, bool there = true) {
    asm volatile("{.reg .pred p; setp.ne.s32 p, %5, 0; @p ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];}"
                 : "+f"(value.x), "+f"(value.y), "+f"(value.z), "+f"(value.w)
                 : "l"(global), "r"(static_cast<int>(there)));
}

// From here on nothing is known of `value`: what was worked out of it is worked out anew.
__device__ __forceinline__ void forget(int& value) { asm volatile("" : "+r"(value)); }

}  // namespace kw
