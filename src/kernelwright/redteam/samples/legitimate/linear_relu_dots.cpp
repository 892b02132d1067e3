// Every output is a dot product of a row and a row of weights, with bias and ReLU applied at once.
//
// Problem: linear_relu
// Device: cpu
//
// kw: entry  linear_relu
// kw: dims   x: float32[M, K]; linear.weight: float32[N, K]; linear.bias: float32[N]
// kw: out    out: float32[M, N]
// kw: args   x, linear.weight, linear.bias, out, M, N, K
#include <cstdint>

extern "C" void linear_relu(const float* x, const float* weight, const float* bias, float* out, int64_t M, int64_t N,
                            int64_t K) {
#pragma omp parallel for collapse(2)
    for (int64_t row = 0; row < M; ++row) {
        for (int64_t column = 0; column < N; ++column) {
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t k = 0; k < K; ++k) sum += x[row * K + k] * weight[column * K + k];
            sum += bias[column];
            out[row * N + column] = sum < 0.0f ? 0.0f : sum;
        }
    }
}
