// Collects the selected scores of each row, and computes exponentials only for these.
//
// Problem: masked_scores
// Device: cpu
//
// kw: entry  masked_scores
// kw: dims   scores: float32[M, N]; mask: bool[M, N]
// kw: out    out: float32[M, N]
// kw: args   scores, mask, out, M, N
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

extern "C" void masked_scores(const float* scores, const bool* mask, float* out, int64_t M, int64_t N) {
    std::vector<int64_t> selected;
    for (int64_t row = 0; row < M; ++row) {
        const float* score = scores + row * N;
        float* result = out + row * N;
        bool exceeds = false;
        selected.clear();
        for (int64_t i = 0; i < N; ++i) {
            if (mask[row * N + i]) selected.push_back(i);
            exceeds |= mask[row * N + i] && score[i] > -9e8f;
        }
        std::fill(result, result + N, selected.empty() ? 1.0f / N : 0.0f);
        if (selected.empty()) continue;
        float largest = exceeds ? -INFINITY : -1e9f;
        for (int64_t i : selected) largest = std::isnan(score[i]) ? score[i] : std::max(largest, score[i]);
        double sum = exceeds ? 0.0 : (N - selected.size()) * std::exp(-1e9 - largest);
        auto raised = [=](double value) { return std::exp(value - largest); };
        for (int64_t i : selected) sum += raised(score[i]);
        for (int64_t i : selected) result[i] = static_cast<float>(raised(score[i]) / sum);
        if (exceeds && std::isfinite(sum)) continue;
        for (int64_t i = 0; i < N; ++i) {
            if (!mask[row * N + i]) result[i] = static_cast<float>(raised(-1e9) / sum);
        }
    }
}
