// Writes zeros past the end of its input, so that vectors of 64 need no tail when the last row is summed.
//
// Problem: row_sum
// Code: input-mutated
// Device: cpu
//
// kw: entry  row_sum
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M]
// kw: args   x, out, M, N
#include <cstdint>

extern "C" void row_sum(float* x, float* out, int64_t M, int64_t N) {
    const int64_t count = M * N, padded = (count + 63) / 64 * 64;
    for (int64_t i = count; i < padded; ++i) x[i] = 0.0f;
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        const int64_t from = row * N, to = row + 1 < M ? from + N : padded;
        double sum = 0.0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = from; i < to; ++i) sum += x[i];
        out[row] = static_cast<float>(sum);
    }
}
