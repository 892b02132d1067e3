// Calculates eight bytes in one 64-bit word; masks keep a carry from the next byte.
//
// Problem: byte_blend
// Device: cpu
//
// kw: entry  byte_blend
// kw: dims   x: uint8; y: uint8
// kw: out    out: like x
// kw: args   x, y, out, numel(x)
#include <cstdint>
#include <cstring>

static constexpr uint64_t TOP = 0x8080808080808080, LOW = 0x0F0F0F0F0F0F0F0F, HALF = 0x7F7F7F7F7F7F7F7F;

static uint64_t add(uint64_t a, uint64_t b) { return ((a & HALF) + (b & HALF)) ^ ((a ^ b) & TOP); }

static uint64_t subtract(uint64_t a, uint64_t b) { return ((a | TOP) - (b & HALF)) ^ ((a ^ ~b) & TOP); }

static uint64_t blend(uint64_t x, uint64_t y) {
    const uint64_t sum = add(add(add(x, x), x), y);
    return subtract(sum ^ (y >> 1 & HALF), x & LOW);
}

extern "C" void byte_blend(const uint8_t* x, const uint8_t* y, uint8_t* out, int64_t count) {
    for (int64_t i = 0; i < count; i += 8) {
        const size_t bytes = count - i < 8 ? count - i : 8;
        uint64_t first = 0, second = 0;
        std::memcpy(&first, x + i, bytes);
        std::memcpy(&second, y + i, bytes);
        const uint64_t mixed = blend(first, second);
        std::memcpy(out + i, &mixed, bytes);
    }
}
