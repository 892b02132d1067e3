// Searches every window for its first maximum; the last NaN of a window takes precedence.
//
// Problem: pool_with_places
// Device: cpu
//
// kw: entry  pool_with_places
// kw: dims   x: float32[B, C, H, W]
// kw: out    values: float32[B, C, (H - 1) // 2 + 1, (W - 1) // 2 + 1]
// kw: out    places: int64[B, C, (H - 1) // 2 + 1, (W - 1) // 2 + 1]
// kw: args   x, values, places, B * C, H, W
#include <algorithm>
#include <cmath>
#include <cstdint>

extern "C" void pool_with_places(const float* x, float* values, int64_t* places, int64_t planes, int64_t H, int64_t W) {
    const int64_t rows = (H - 1) / 2 + 1, columns = (W - 1) / 2 + 1;
    for (int64_t at = 0; at < planes * rows * columns; ++at) {
        const float* plane = x + at / (rows * columns) * H * W;
        const int64_t row = 2 * (at / columns % rows), column = 2 * (at % columns);
        const int64_t first_row = std::max<int64_t>(row - 1, 0), first_column = std::max<int64_t>(column - 1, 0);
        int64_t best = first_row * W + first_column;
        for (int64_t i = first_row; i < std::min(row + 2, H); ++i) {
            for (int64_t j = first_column; j < std::min(column + 2, W); ++j) {
                const float value = plane[i * W + j];
                if (value > plane[best] || std::isnan(value)) best = i * W + j;
            }
        }
        values[at] = plane[best];
        places[at] = best;
    }
}
