// Sums every output by loops over its window, and leaves out what is outside of the image.
//
// Problem: strided_convolution
// Device: cpu
//
// kw: entry  strided_convolution
// kw: dims   x: float32[B, 6, H, W]; conv.weight: float32[10, 3, 5, 5]; conv.bias: float32[10]
// kw: out    out: float32[B, 10, (H - 1) // 2 + 1, (W - 1) // 2 + 1]
// kw: args   x, conv.weight, conv.bias, out, B, H, W
#include <cstdint>

extern "C" void strided_convolution(const float* x, const float* weight, const float* bias, float* out, int64_t B,
                                    int64_t H, int64_t W) {
    const int64_t rows = (H - 1) / 2 + 1, columns = (W - 1) / 2 + 1;
#pragma omp parallel for collapse(2)
    for (int64_t plane = 0; plane < B * 10; ++plane) {
        for (int64_t row = 0; row < rows; ++row) {
            const int64_t channel = plane % 10;
            const float* first = x + (plane / 10 * 6 + channel / 5 * 3) * H * W;
            for (int64_t column = 0; column < columns; ++column) {
                float sum = 0.0f;
                for (int64_t c = 0; c < 3; ++c) {
                    for (int64_t i = 0; i < 5; ++i) {
                        const int64_t y = 2 * row + i - 2;
                        if (y < 0 || y >= H) continue;
                        for (int64_t j = 0; j < 5; ++j) {
                            const int64_t at = 2 * column + j - 2;
                            if (at >= 0 && at < W) {
                                sum += first[(c * H + y) * W + at] * weight[((channel * 3 + c) * 5 + i) * 5 + j];
                            }
                        }
                    }
                }
                out[(plane * rows + row) * columns + column] = sum + bias[channel];
            }
        }
    }
}
