// Adds squares or distances by a branch, in FP64, row by row.
//
// Problem: huber
// Device: cpu
//
// kw: entry  huber
// kw: dims   x: float32; y: float32
// kw: out    out: float32[]
// kw: args   x, y, delta, out, numel(x)
#include <cmath>
#include <cstdint>

extern "C" void huber(const float* x, const float* y, double delta, float* out, int64_t count) {
    double sum = 0.0;
#pragma omp parallel for reduction(+ : sum)
    for (int64_t i = 0; i < count; ++i) {
        const double distance = std::abs(static_cast<double>(x[i]) - y[i]);
        sum += distance < delta ? 0.5 * distance * distance : delta * (distance - 0.5 * delta);
    }
    *out = static_cast<float>(sum / count);
}
