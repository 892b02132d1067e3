// The losses of the rows in parallel, and their mean in FP64.
//
// Problem: cross_entropy
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
        const double top = *std::max_element(in, in + N);
        double sum = 0.0;
        for (int64_t i = 0; i < N; ++i) sum += std::exp(in[i] - top);
        total += top + std::log(sum) - in[targets[row]];
    }
    *loss = static_cast<float>(total / M);
}
