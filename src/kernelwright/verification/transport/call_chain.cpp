// The chain between the calls of a series: the inputs of a call follow from the outputs of the call before it.
#include <cstdint>
#include <cstring>

namespace {
constexpr uint64_t STEP = 0x9E3779B97F4A7C15ull;

// A bijection of the digest for each word, so that no word makes it forget what came before.
uint64_t mix(uint64_t digest, uint64_t word) {
    digest = (digest ^ word) * 0x9FB21C651E98DF25ull;
    return digest ^ (digest >> 32);
}

uint32_t scramble(uint64_t at, uint32_t low, uint32_t high) {
    uint32_t bits = ((uint32_t)at + low) * 0x9E3779B9u;
    bits = (bits ^ (bits >> 15) ^ high) * 0x85EBCA6Bu;
    return (bits ^ (bits >> 13)) * 0xC2B2AE35u;
}

// Changes the low bits of each mantissa. Zeros, denormal and infinite numbers, NaN and powers of two stay: they may
// have a meaning (a mask, a bound), and none becomes another kind of number.
template <class Word>
void change(Word* words, uint64_t count, Word changed, Word exponent, Word mantissa, uint64_t digest) {
    const uint32_t low = (uint32_t)digest, high = (uint32_t)(digest >> 32);
    for (uint64_t at = 0; at < count; ++at) {
        const uint32_t bits = scramble(at, low, high);
        Word random = (Word)bits;
        if constexpr (sizeof(Word) == 8) random = (Word)bits * 0x9E3779B97F4A7C15ull;
        const Word word = words[at], scale = word & exponent;
        const bool keeps = scale == 0 || scale == exponent || (word & mantissa) == 0;
        words[at] = keeps ? word : word ^ (random & changed);
    }
}

// In half of the pairs of numbers next to each other one takes the other's place, or with `copies` its value.
template <class Word>
void change_pairs(Word* words, uint64_t count, bool copies, uint64_t digest) {
    const uint32_t low = (uint32_t)digest, high = (uint32_t)(digest >> 32);
    for (uint64_t at = 0; at + 1 < count; at += 2) {
        const uint32_t bits = scramble(at, low, high) >> 30;
        const Word first = words[at], second = words[at + 1];
        const bool changes_first = copies ? bits == 1 : bits & 1, changes_second = copies ? bits == 2 : bits & 1;
        words[at] = changes_first ? second : first;
        words[at + 1] = changes_second ? first : second;
    }
}
}  // namespace

struct Block {
    uint64_t address, bytes, item_bytes, change, changed, exponent, mantissa;
};
enum Change : uint64_t { LOW_BITS = 1, SWAP, COPY };

namespace {
template <class Word>
void derive_block(const Block& one, uint64_t digest) {
    Word* words = (Word*)one.address;
    const uint64_t count = one.bytes / sizeof(Word);
    if (one.change != LOW_BITS)
        change_pairs(words, count, one.change == COPY, digest);
    else if constexpr (sizeof(Word) > 1)
        change(words, count, (Word)one.changed, (Word)one.exponent, (Word)one.mantissa, digest);
}
}  // namespace

extern "C" uint64_t absorb(uint64_t digest, const void* data, uint64_t bytes) {
    const unsigned char* from = (const unsigned char*)data;
    uint64_t lanes[4] = {digest, digest + STEP, digest + 2 * STEP, digest ^ bytes};
    for (; bytes >= 32; from += 32, bytes -= 32)
        for (int lane = 0; lane < 4; ++lane) {
            uint64_t word;
            std::memcpy(&word, from + 8 * lane, 8);
            lanes[lane] = mix(lanes[lane], word);
        }
    uint64_t tail[4] = {};
    std::memcpy(tail, from, bytes);
    for (int lane = 0; lane < 4; ++lane) digest = mix(digest, mix(lanes[lane], tail[lane]));
    return mix(digest, STEP);
}

extern "C" void derive(const Block* blocks, uint64_t count, uint64_t digest) {
    for (uint64_t at = 0; at < count; ++at) {
        const Block& one = blocks[at];
        const uint64_t key = mix(digest, at);
        if (one.item_bytes == 1) derive_block<uint8_t>(one, key);
        if (one.item_bytes == 2) derive_block<uint16_t>(one, key);
        if (one.item_bytes == 4) derive_block<uint32_t>(one, key);
        if (one.item_bytes == 8) derive_block<uint64_t>(one, key);
    }
}
