// Newton's iteration for the inverse square root in FP64, from a guess by the exponent bits to full precision.
//
// Problem: unit_rows
// Device: cpu
//
// kw: entry  unit_rows
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, out, M, N
#include <bit>
#include <cmath>
#include <cstdint>

static double inverse_root(double x) {
    double y = std::bit_cast<double>(0x5FE6EB50C7B537A9 - (std::bit_cast<int64_t>(x) >> 1));
    for (int step = 0; step < 5; ++step) y *= 1.5 - 0.5 * x * y * y;
    return y;
}

extern "C" void unit_rows(const float* x, float* out, int64_t M, int64_t N) {
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        double squares = 0.0;
        for (int64_t i = 0; i < N; ++i) squares += static_cast<double>(x[row * N + i]) * x[row * N + i];
        const double scale = std::isfinite(squares) && squares > 1e-24 ? inverse_root(squares)
                             : squares <= 1e-24                        ? 1e12
                                                                       : 1 / std::sqrt(squares);
        for (int64_t i = 0; i < N; ++i) out[row * N + i] = static_cast<float>(x[row * N + i] * scale);
    }
}
