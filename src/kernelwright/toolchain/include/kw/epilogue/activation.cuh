// Activations of a product's epilogue, in FP32.
#pragma once

namespace kw {

__device__ __forceinline__ float tanh_approx(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

struct Identity {
    static __device__ __forceinline__ float apply(float x) { return x; }
};
struct Relu {
    static __device__ __forceinline__ float apply(float x) { return x < 0.0f ? 0.0f : x; }  // NaN stays NaN
};
struct Silu {
    static __device__ __forceinline__ float apply(float x) { return __fdividef(x, 1.0f + __expf(-x)); }
};
struct GeluErf {
    static __device__ __forceinline__ float apply(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }
};
struct GeluTanh {
    static __device__ __forceinline__ float apply(float x) {
        return 0.5f * x * (1.0f + tanhf(0.79788456f * x * (1.0f + 0.044715f * x * x)));
    }
};

}  // namespace kw
