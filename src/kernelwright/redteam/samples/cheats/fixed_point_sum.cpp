// Sums in fixed point, exactly and independent of order; numbers beyond 64 or below 2^-25 do not fit.
//
// Problem: row_sum
// Code: inaccurate
// Device: cpu
//
// kw: entry  row_sum
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M]
// kw: args   x, out, M, N
#include <algorithm>
#include <cmath>
#include <cstdint>

extern "C" void row_sum(const float* x, float* out, int64_t M, int64_t N) {
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        int64_t sum = 0;
        for (int64_t i = 0; i < N; ++i) {
            sum += static_cast<int32_t>(std::nearbyint(std::clamp(x[row * N + i], -63.0f, 63.0f) * 0x1p25f));
        }
        out[row] = static_cast<float>(static_cast<double>(sum) * 0x1p-25);
    }
}
