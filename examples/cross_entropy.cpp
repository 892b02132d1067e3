// Cross-entropy that reads the logits once: maximum and sum of exponentials are kept together, block by block, and
// the sum is rescaled when a larger maximum turns up. Nothing of the logits' size is written.
//
// kw: entry  cross_entropy
// kw: dims   logits: float32[M, N]; target: int64[M]
// kw: out    loss: float32[]
// kw: args   logits, target, loss, M, N
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

constexpr int64_t kBlock = 2048;  // 8 KB of logits: the second walk over a block finds it in the first cache

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

static float log_sum_exp(const float* x, int64_t N) {
    float top = -std::numeric_limits<float>::infinity();
    double sum = 0.0;  // small terms added to a 1 in FP32 would each be rounded the same way
    for (int64_t start = 0; start < N; start += kBlock) {
        const float* __restrict__ block = x + start;
        const int64_t count = std::min(kBlock, N - start);
        float highest = top;
#pragma omp simd reduction(max : highest)
        for (int64_t i = 0; i < count; ++i) highest = block[i] > highest ? block[i] : highest;
        if (highest > top) sum *= std::exp(static_cast<double>(top) - highest);
        top = highest;
        const float base = std::isinf(top) && top < 0 ? 0.0f : top;  // nothing but -inf so far: each of them counts 0
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < count; ++i) sum += exp_of_negative(block[i] - base);
    }
    return top + static_cast<float>(std::log(sum));
}

extern "C" void cross_entropy(const float* logits, const int64_t* target, float* loss, int64_t M, int64_t N) {
    double total = 0.0;
#pragma omp parallel for schedule(static) reduction(+ : total)
    for (int64_t row = 0; row < M; ++row) {
        const float* x = logits + row * N;
        total += log_sum_exp(x, N) - x[target[row]];
    }
    *loss = static_cast<float>(total / M);
}
