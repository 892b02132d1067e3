// Reads the input with both strides and sums in four lanes of FP64.
//
// Problem: row_sum
// Device: cpu
//
// kw: entry   row_sum
// kw: dims    x: float32[M, N]
// kw: strided x
// kw: out     out: float32[M]
// kw: args    x, out, M, N, stride(x, 0), stride(x, 1)
#include <cstdint>

extern "C" void row_sum(const float* x, float* out, int64_t M, int64_t N, int64_t down, int64_t along) {
    for (int64_t row = 0; row < M; ++row) {
        double lanes[4] = {};
        for (int64_t i = 0; i < N; ++i) lanes[i & 3] += x[row * down + i * along];
        out[row] = static_cast<float>((lanes[0] + lanes[2]) + (lanes[1] + lanes[3]));
    }
}
