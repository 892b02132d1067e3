// Orders only the first four places of each row; NaN counts as the largest.
//
// Problem: top_four
// Device: cpu
//
// kw: entry  top_four
// kw: dims   x: float32[M, N]
// kw: out    values: float32[M, 4]
// kw: out    places: int64[M, 4]
// kw: args   x, values, places, M, N
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

extern "C" void top_four(const float* x, float* values, int64_t* places, int64_t M, int64_t N) {
    std::vector<int64_t> order(N);
    for (int64_t row = 0; row < M; ++row) {
        const float* value = x + row * N;
        std::iota(order.begin(), order.end(), 0);
        std::partial_sort(order.begin(), order.begin() + 4, order.end(), [=](int64_t a, int64_t b) {
            if (std::isnan(value[a]) || std::isnan(value[b])) return std::isnan(value[a]) && !std::isnan(value[b]);
            return value[a] > value[b];
        });
        for (int64_t i = 0; i < 4; ++i) {
            places[row * 4 + i] = order[i];
            values[row * 4 + i] = value[order[i]];
        }
    }
}
