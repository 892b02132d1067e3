// Quantises rows and columns to INT16 and sums exactly in integers.
//
// Problem: matmul
// Code: inaccurate
// Device: cpu
//
// kw: entry  matmul
// kw: dims   a: float32[M, K]; b: float32[K, N]
// kw: out    out: float32[M, N]
// kw: args   a, b, out, M, N, K
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

static float quantise(const float* x, int64_t count, int64_t stride, int16_t* to) {
    float largest = 1e-30f;
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(x[i * stride]));
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<int16_t>(std::lrint(x[i * stride] / largest * 32767.0f));
    return largest / 32767.0f;
}

extern "C" void matmul(const float* a, const float* b, float* out, int64_t M, int64_t N, int64_t K) {
    std::vector<int16_t> left(M * K), right(N * K);
    std::vector<float> rows(M), columns(N);
    for (int64_t i = 0; i < M; ++i) rows[i] = quantise(a + i * K, K, 1, &left[i * K]);
    for (int64_t j = 0; j < N; ++j) columns[j] = quantise(b + j, K, N, &right[j * K]);
#pragma omp parallel for
    for (int64_t i = 0; i < M; ++i) {
        for (int64_t j = 0; j < N; ++j) {
            int64_t sum = 0;
            for (int64_t k = 0; k < K; ++k) sum += static_cast<int32_t>(left[i * K + k]) * right[j * K + k];
            out[i * N + j] = static_cast<float>(static_cast<double>(sum) * rows[i] * columns[j]);
        }
    }
}
