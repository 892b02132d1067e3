// A merge sort from runs of one element, which prefers the left run among equal keys.
//
// Problem: stable_order
// Device: cpu
//
// kw: entry  stable_order
// kw: dims   keys: int64[M, N]
// kw: out    values: int64[M, N]
// kw: out    places: int64[M, N]
// kw: args   keys, values, places, M, N
#include <cstdint>
#include <numeric>
#include <vector>

extern "C" void stable_order(const int64_t* keys, int64_t* values, int64_t* places, int64_t M, int64_t N) {
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        const int64_t* key = keys + row * N;
        std::vector<int64_t> from(N), to(N);
        std::iota(from.begin(), from.end(), 0);
        for (int64_t length = 1; length < N; length *= 2) {
            for (int64_t first = 0; first < N; first += 2 * length) {
                const int64_t middle = first + length < N ? first + length : N;
                const int64_t end = first + 2 * length < N ? first + 2 * length : N;
                int64_t left = first, right = middle;
                for (int64_t at = first; at < end; ++at) {
                    const bool take_left = left < middle && (right == end || key[from[left]] <= key[from[right]]);
                    to[at] = from[take_left ? left++ : right++];
                }
            }
            from.swap(to);
        }
        for (int64_t i = 0; i < N; ++i) {
            places[row * N + i] = from[i];
            values[row * N + i] = key[from[i]];
        }
    }
}
