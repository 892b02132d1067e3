// Approximations by the special function unit in FP32, with a relative error of about 2^-22; denormals become zeros.
// PTX ISA, "ex2.approx.ftz", "rcp.approx.ftz".
#pragma once

namespace kw {

constexpr float kLog2e = 1.4426950408889634f;

__device__ __forceinline__ float ex2_approx(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

__device__ __forceinline__ float rcp_approx(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// e^x.
__device__ __forceinline__ float fast_exp(float x) { return ex2_approx(x * kLog2e); }

}  // namespace kw
