// Normalises by the batch in FP64 and updates the running statistics in place.
//
// Problem: running_norm
// Device: cpu
//
// kw: entry  running_norm
// kw: dims   x: float32[M, N]; norm.weight: float32[N]; norm.bias: float32[N]
// kw: dims   norm.running_mean: float32[N]; norm.running_var: float32[N]; norm.num_batches_tracked: int64[]
// kw: out    out: float32[M, N]
// kw: args   x, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.num_batches_tracked, out, M, N
#include <cmath>
#include <cstdint>

extern "C" void running_norm(const float* x, const float* weight, const float* bias, float* running_mean,
                             float* running_var, int64_t* batches, float* out, int64_t M, int64_t N) {
#pragma omp parallel for
    for (int64_t i = 0; i < N; ++i) {
        double sum = 0.0, squares = 0.0;
        for (int64_t row = 0; row < M; ++row) sum += x[row * N + i];
        const double mean = sum / M;
        for (int64_t row = 0; row < M; ++row) squares += (x[row * N + i] - mean) * (x[row * N + i] - mean);
        running_mean[i] = static_cast<float>(0.9 * running_mean[i] + 0.1 * mean);
        running_var[i] = static_cast<float>(0.9 * running_var[i] + 0.1 * squares / (M - 1));
        const double scale = weight[i] / std::sqrt(squares / M + 1e-5);
        for (int64_t row = 0; row < M; ++row) {
            out[row * N + i] = static_cast<float>((x[row * N + i] - mean) * scale + bias[i]);
        }
    }
    ++*batches;
}
