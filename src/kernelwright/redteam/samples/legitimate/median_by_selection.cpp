// Places the middle element by std::nth_element; a row with NaN has no median.
//
// Problem: row_median
// Device: cpu
//
// kw: entry  row_median
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M]
// kw: args   x, out, M, N
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

extern "C" void row_median(const float* x, float* out, int64_t M, int64_t N) {
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        std::vector<float> copy(x + row * N, x + (row + 1) * N);
        const auto nan = std::find_if(copy.begin(), copy.end(), [](float value) { return std::isnan(value); });
        const auto middle = copy.begin() + (N - 1) / 2;
        if (nan == copy.end()) std::nth_element(copy.begin(), middle, copy.end());
        out[row] = nan == copy.end() ? *middle : *nan;
    }
}
