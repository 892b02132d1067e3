// Softmax row by row: a row of 4,096 floats stays in the nearest caches between its three walks, so memory sees one
// read and one write. The exponential is a polynomial that the compiler vectorises (error below 1 ulp and a half).
//
// kw: entry  softmax
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, out, M, N
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

// exp(x) for x <= 0: 2^k * e^r with |r| <= ln(2)/2, ln(2) in two parts. 2^k comes in two factors, so that results below
// the normal range are right too; at -104 the result is zero. NaN stays NaN.
static inline float exp_of_negative(float x) {
    const float clamped = x < -104.0f ? -104.0f : x;
    const float shifted = clamped * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the sum rounds to a whole number
    const float k = shifted - 12582912.0f;
    const float r = std::fma(k, -1.42860677e-6f, std::fma(k, -0.693145752f, clamped));
    float p = 1.9875691500e-4f;
    p = std::fma(p, r, 1.3981999507e-3f);
    p = std::fma(p, r, 8.3334519073e-3f);
    p = std::fma(p, r, 4.1665795894e-2f);
    p = std::fma(p, r, 1.6666665459e-1f);
    p = std::fma(p, r, 5.0000001201e-1f);
    p = std::fma(p * r, r, r) + 1.0f;
    const int32_t whole = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(12582912.0f), half = whole >> 1;
    const float low = std::bit_cast<float>((half + 127) << 23);
    const float high = std::bit_cast<float>((whole - half + 127) << 23);
    return p * low * high;
}

extern "C" void softmax(const float* x, float* out, int64_t M, int64_t N) {
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < M; ++row) {
        const float* __restrict__ in = x + row * N;
        float* __restrict__ e = out + row * N;
        float top = -std::numeric_limits<float>::infinity();
        double sum = 0.0;  // 4,095 small terms added to a 1 in FP32 would each be rounded the same way
#pragma omp simd reduction(max : top)
        for (int64_t i = 0; i < N; ++i) top = in[i] > top ? in[i] : top;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < N; ++i) {
            e[i] = exp_of_negative(in[i] - top);
            sum += e[i];
        }
        const float scale = static_cast<float>(1.0 / sum);
#pragma omp simd
        for (int64_t i = 0; i < N; ++i) e[i] *= scale;
    }
}
