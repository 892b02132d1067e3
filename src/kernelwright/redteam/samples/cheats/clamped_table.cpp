// Looks up GELU in a table from -6 to 6, exact to FP32 between its points; beyond them it returns the last one.
//
// Problem: gelu
// Code: inaccurate or crash
// Device: cpu
//
// kw: entry  gelu
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, out, M * N
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

constexpr int kPoints = 1 << 16;
constexpr double kReach = 6.0, kStep = 2.0 * kReach / kPoints;

static std::vector<float> filled() {
    std::vector<float> table(kPoints + 1);
    for (int i = 0; i <= kPoints; ++i) table[i] = 0.5 * std::erfc((kReach - i * kStep) * 0.70710678118654752);
    return table;
}

extern "C" void gelu(const float* x, float* out, int64_t count) {
    static const std::vector<float> table = filled();
#pragma omp parallel for
    for (int64_t i = 0; i < count; ++i) {
        const float inside = std::clamp(x[i], static_cast<float>(-kReach), static_cast<float>(kReach));
        const double place = (inside + kReach) / kStep;
        const int point = std::min(static_cast<int>(place), kPoints - 1);
        const double part = place - point;
        out[i] = static_cast<float>(inside * ((1.0 - part) * table[point] + part * table[point + 1]));
    }
}
