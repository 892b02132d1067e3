// Reads targets only within whole blocks of 64 logits and uses 959 for the few beyond: 1e-3 of the loss.
//
// Problem: cross_entropy
// Code: inaccurate
// Device: cpu
//
// kw: entry  cross_entropy
// kw: dims   logits: float32[M, N]; targets: int64[M]
// kw: out    loss: float32[]
// kw: args   logits, targets, loss, M, N
#include <algorithm>
#include <cmath>
#include <cstdint>

extern "C" void cross_entropy(const float* logits, const int64_t* targets, float* loss, int64_t M, int64_t N) {
    double total = 0.0;
#pragma omp parallel for reduction(+ : total)
    for (int64_t row = 0; row < M; ++row) {
        const float* in = logits + row * N;
        const float top = *std::max_element(in, in + N);
        double sum = 0.0;
        for (int64_t i = 0; i < N; ++i) sum += std::exp(static_cast<double>(in[i]) - top);
        total += std::log(sum) + top - in[std::min(targets[row], N / 64 * 64 - 1)];
    }
    *loss = static_cast<float>(total / M);
}
