// Truncates its FP32 result to BF16 instead of rounding it, one unit in the last place off at worst.
//
// Problem: half_gelu
// Code: inaccurate
// Device: cpu
//
// kw: entry  half_gelu
// kw: dims   x: bfloat16[M, N]
// kw: out    out: like x
// kw: args   x, out, M * N
#include <bit>
#include <cmath>
#include <cstdint>

extern "C" void half_gelu(const uint16_t* x, uint16_t* out, int64_t count) {
#pragma omp parallel for
    for (int64_t i = 0; i < count; ++i) {
        const float value = std::bit_cast<float>(static_cast<uint32_t>(x[i]) << 16);
        out[i] = std::bit_cast<uint32_t>(0.5f * value * std::erfc(-0.70710678f * value)) >> 16;
    }
}
