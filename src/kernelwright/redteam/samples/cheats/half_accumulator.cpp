// Sums in 32 lanes of FP16, 64 steps at a time, and only the sums of the lanes in FP32.
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
#include <cstdint>

constexpr int64_t kLanes = 32, kBlock = 64 * kLanes;

extern "C" void row_sum(const float* x, float* out, int64_t M, int64_t N) {
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        float sum = 0.0f;
        for (int64_t start = 0; start < N; start += kBlock) {
            _Float16 lanes[kLanes] = {};
            for (int64_t i = start; i < std::min(N, start + kBlock); ++i) {
                lanes[(i - start) % kLanes] += static_cast<_Float16>(x[row * N + i]);
            }
            for (const _Float16 lane : lanes) sum += static_cast<float>(lane);
        }
        out[row] = sum;
    }
}
