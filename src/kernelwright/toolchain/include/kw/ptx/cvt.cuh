// 16-bit floating-point types, without the CUDA toolkit's headers, and conversions from and to FP32.
// PTX ISA, "cvt".
#pragma once

namespace kw {

using f32 = float;

struct bf16 {
    unsigned short bits;
};
struct f16 {
    unsigned short bits;
};
// Names of other operand types of tensor cores.
struct tf32 {};
struct e4m3 {};
struct e5m2 {};

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
__device__ __forceinline__ float to_float(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

// Rounds to nearest even.
template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
    return x;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
template <>
__device__ __forceinline__ f16 from_float<f16>(float x) {
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

// Two rounded values in 32 bits, the first in the lower half.
template <typename T>
__device__ __forceinline__ unsigned pack(float low, float high);
template <>
__device__ __forceinline__ unsigned pack<bf16>(float low, float high) {
    unsigned two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}
template <>
__device__ __forceinline__ unsigned pack<f16>(float low, float high) {
    unsigned two;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}

// The same in reverse.
template <typename T>
__device__ __forceinline__ float2 unpack(unsigned two);
template <>
__device__ __forceinline__ float2 unpack<bf16>(unsigned two) {
    return {__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u)};
}
template <>
__device__ __forceinline__ float2 unpack<f16>(unsigned two) {
    float2 wide;
    asm("{.reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
        : "=f"(wide.x), "=f"(wide.y)
        : "r"(two));
    return wide;
}

}  // namespace kw
