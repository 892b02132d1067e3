// A dot product for every row of the weights, eight sums of 16 in flight, so that memory is the only thing to wait on.
//
// kw: entry  matvec
// kw: dims   x: float32[1, K]; weight: float32[N, K]
// kw: out    out: float32[1, N]
// kw: args   x, weight, out, N, K
#include <cstdint>

constexpr int kRows = 4;  // rows at once: one load of x serves all, and four streams keep the prefetchers busy

extern "C" void matvec(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out,
                       int64_t N, int64_t K) {
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < N; n += kRows) {
        const int64_t last = N - 1;
        const float* rows[kRows];
        for (int r = 0; r < kRows; ++r) rows[r] = weight + (n + r < last ? n + r : last) * K;
        float a = 0, b = 0, c = 0, d = 0;
#pragma omp simd reduction(+ : a, b, c, d)
        for (int64_t k = 0; k < K; ++k) {
            a += x[k] * rows[0][k];
            b += x[k] * rows[1][k];
            c += x[k] * rows[2][k];
            d += x[k] * rows[3][k];
        }
        const float sums[kRows] = {a, b, c, d};
        for (int r = 0; r < kRows && n + r < N; ++r) out[n + r] = sums[r];
    }
}
