// Adds the rows of each bag and divides by their number; the last bag ends with the indices.
//
// Problem: bag_means
// Device: cpu
//
// kw: entry  bag_means
// kw: dims   indices: int64[I]; offsets: int64[B]; table.weight: float32[C, N]
// kw: out    out: float32[B, N]
// kw: args   indices, offsets, table.weight, out, I, B, N
#include <cstdint>

extern "C" void bag_means(const int64_t* indices, const int64_t* offsets, const float* table, float* out, int64_t I,
                          int64_t B, int64_t N) {
    for (int64_t bag = 0; bag < B; ++bag) {
        const int64_t first = offsets[bag], end = bag + 1 < B ? offsets[bag + 1] : I;
        for (int64_t i = 0; i < N; ++i) {
            float sum = 0.0f;
            for (int64_t at = first; at < end; ++at) sum += table[indices[at] * N + i];
            out[bag * N + i] = end > first ? sum / (end - first) : 0.0f;
        }
    }
}
