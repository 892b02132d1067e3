// Moves the rows of the cache in place, one after another, and sums them on the way.
//
// Problem: rolling_cache
// Device: cpu
//
// kw: entry  rolling_cache
// kw: dims   x: float32[B, N]; cache: float32[B, L, N]
// kw: out    out: float32[B, N]
// kw: args   x, cache, out, B, L, N
#include <cstdint>
#include <cstring>

extern "C" void rolling_cache(const float* x, float* cache, float* out, int64_t B, int64_t L, int64_t N) {
    for (int64_t batch = 0; batch < B; ++batch) {
        float* rows = cache + batch * L * N;
        std::memmove(rows, rows + N, (L - 1) * N * sizeof(float));
        std::memcpy(rows + (L - 1) * N, x + batch * N, N * sizeof(float));
        for (int64_t i = 0; i < N; ++i) {
            double sum = 0.0;
            for (int64_t row = 0; row < L; ++row) sum += rows[row * N + i];
            out[batch * N + i] = static_cast<float>(sum / L);
        }
    }
}
