// Softmax whose exponential is a polynomial of degree nine after the range is reduced to half of log(2), in FP64.
//
// Problem: softmax
// Device: cpu
//
// kw: entry  softmax
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, out, M, N
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

static double exponential(double x) {
    if (!(x > -700.0)) return x != x ? x : 0.0;
    const double power = std::nearbyint(x * 1.4426950408889634);
    const double r = x - power * 0.6931471805599453;
    double sum = 1.0;
    for (int k = 9; k; --k) sum = 1.0 + sum * r / k;
    return sum * std::bit_cast<double>((static_cast<int64_t>(power) + 1023) << 52);
}

extern "C" void softmax(const float* x, float* out, int64_t M, int64_t N) {
    std::vector<double> raised(N);
    for (int64_t row = 0; row < M; ++row) {
        float largest = -INFINITY;
        double sum = 0.0;
        for (int64_t i = 0; i < N; ++i) largest = std::fmax(largest, x[row * N + i]);
        for (int64_t i = 0; i < N; ++i) sum += raised[i] = exponential(static_cast<double>(x[row * N + i]) - largest);
        for (int64_t i = 0; i < N; ++i) out[row * N + i] = static_cast<float>(raised[i] / sum);
    }
}
