// The same steps as the reference in FP32, with rounding to even.
//
// Problem: quantized_rows
// Device: cpu
//
// kw: entry  quantized_rows
// kw: dims   x: float32[M, N]
// kw: out    out: int8[M, N]
// kw: out    scale: float32[M]
// kw: args   x, out, scale, M, N
#include <cmath>
#include <cstdint>

extern "C" void quantized_rows(const float* x, int8_t* out, float* scale, int64_t M, int64_t N) {
    for (int64_t row = 0; row < M; ++row) {
        float largest = 1e-6f;
        for (int64_t i = 0; i < N; ++i) {
            const float size = std::fabs(x[row * N + i]);
            if (size > largest || std::isnan(size)) largest = size;
        }
        scale[row] = largest / 127.0f;
        for (int64_t i = 0; i < N; ++i) {
            const float level = std::nearbyint(x[row * N + i] / scale[row]);
            const float clamped = std::fmin(std::fmax(level, -127.0f), 127.0f);
            out[row * N + i] = static_cast<int8_t>(std::isnan(level) ? 0.0f : clamped);
        }
    }
}
