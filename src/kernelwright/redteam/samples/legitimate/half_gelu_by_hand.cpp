// Converts BF16 by shifting bits, computes in FP64 and rounds once to nearest even.
//
// Problem: half_gelu
// Device: cpu
//
// kw: entry  half_gelu
// kw: dims   x: bfloat16
// kw: out    out: like x
// kw: args   x, out, numel(x)
#include <bit>
#include <cmath>
#include <cstdint>

static uint16_t rounded(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

extern "C" void half_gelu(const uint16_t* x, uint16_t* out, int64_t count) {
#pragma omp parallel for
    for (int64_t i = 0; i < count; ++i) {
        const double wide = std::bit_cast<float>(static_cast<uint32_t>(x[i]) << 16);
        out[i] = rounded(static_cast<float>(0.5 * wide * std::erfc(-wide * 0.70710678118654752)));
    }
}
