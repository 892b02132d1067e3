// Keeps each row of the matrix as bits and joins the rows of all nodes that a node reaches, twice.
//
// Problem: reachable
// Device: cpu
//
// kw: entry  reachable
// kw: dims   edges: bool[N, N]
// kw: out    out: bool[N, N]
// kw: args   edges, out, N
#include <cstdint>
#include <vector>

extern "C" void reachable(const bool* edges, bool* out, int64_t N) {
    const int64_t words = (N + 63) / 64;
    std::vector<uint64_t> bits(N * words);
    for (int64_t i = 0; i < N * N; ++i) {
        if (edges[i]) bits[i / N * words + i % N / 64] |= uint64_t{1} << (i % N % 64);
    }
    for (int round = 0; round < 2; ++round) {
        std::vector<uint64_t> joined = bits;
        for (int64_t row = 0; row < N; ++row) {
            for (int64_t k = 0; k < N; ++k) {
                if (!(bits[row * words + k / 64] >> (k % 64) & 1)) continue;
                for (int64_t word = 0; word < words; ++word) joined[row * words + word] |= bits[k * words + word];
            }
        }
        bits.swap(joined);
    }
    for (int64_t i = 0; i < N * N; ++i) out[i] = bits[i / N * words + i % N / 64] >> (i % N % 64) & 1;
}
