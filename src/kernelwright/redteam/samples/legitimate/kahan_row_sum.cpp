// Kahan summation, element by element, in FP32.
//
// Problem: row_sum
// Device: cpu
//
// kw: entry  row_sum
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M]
// kw: args   x, out, M, N
#include <cstdint>

extern "C" void row_sum(const float* x, float* out, int64_t M, int64_t N) {
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        float sum = 0.0f, lost = 0.0f;
        for (int64_t i = 0; i < N; ++i) {
            const float wanted = x[row * N + i] - lost;
            const float grown = sum + wanted;
            lost = (grown - sum) - wanted;
            sum = grown;
        }
        out[row] = sum;
    }
}
