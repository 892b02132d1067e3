// Activations of a product's epilogue, in FP32.
#pragma once

namespace kw {

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
    // x Phi(x) with Phi(-|x|) = t P(t) exp(-x^2 / 2), t = 1 / (1 + p |x| / sqrt(2)); relative error 7e-7, in the negative
    // tail too, where 1 + erf(x) would cancel. Form: Abramowitz & Stegun 7.1.26; the coefficients are a minimax fit.
    static __device__ __forceinline__ float apply(float x) {
        const float z = 0.70710678f * fabsf(x), t = __fdividef(1.0f, fmaf(0.37f, z, 1.0f));
        float sum = fmaf(t, -0.07148762f, 0.218599725f);
        sum = fmaf(t, sum, -0.094338297f);
        sum = fmaf(t, sum, 0.159540668f);
        sum = fmaf(t, sum, 0.0759913531f);
        sum = fmaf(t, sum, 0.107510149f);
        sum = fmaf(t, sum, 0.10418436f);
        const float tail = t * sum * exp2f(-1.44269504f * z * z);
        return x * (x > 0.0f ? 1.0f - tail : tail);
    }
};
// For a result in BF16: Phi(x) = 1 / (1 + exp(-x p(x^2))) with a minimax fit of p for |x| < 5; relative error 4e-4, absolute
// error beyond 5e-7. Two thirds of the instructions of GeluErf.
struct GeluErfBf16 {
    static __device__ __forceinline__ float apply(float x) {
        const float z = fminf(x * x, 25.0f);
        float p = fmaf(z, 2.9019802e-08f, -2.0528998e-06f);  // times -log2(e)
        p = fmaf(z, p, 3.9314543e-05f);
        p = fmaf(z, p, 0.00084793289f);
        p = fmaf(z, p, -0.10687305f);
        p = fmaf(z, p, -2.3006304f);
        return __fdividef(x, 1.0f + exp2f(x * p));
    }
};
struct GeluTanh {
    static __device__ __forceinline__ float apply(float x) {
        // x (1 + tanh(u)) / 2 = x / (1 + exp(-2 u)), without cancellation in the negative tail
        return __fdividef(x, 1.0f + __expf(-1.59576912f * x * fmaf(0.044715f * x, x, 1.0f)));
    }
};

}  // namespace kw
