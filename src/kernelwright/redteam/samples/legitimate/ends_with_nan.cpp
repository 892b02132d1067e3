// Finds both ends of a row in four lanes; a comparison that is false for NaN keeps it in its lane.
//
// Problem: row_ends
// Device: cpu
//
// kw: entry  row_ends
// kw: dims   x: float32[M, N]
// kw: out    high: float32[M]
// kw: out    low: float32[M]
// kw: args   x, high, low, M, N
#include <cstdint>

static float larger(float a, float b) { return a != a || a >= b ? a : b; }
static float smaller(float a, float b) { return a != a || a <= b ? a : b; }

extern "C" void row_ends(const float* x, float* high, float* low, int64_t M, int64_t N) {
    for (int64_t row = 0; row < M; ++row, x += N) {
        float top[4] = {x[0], x[0], x[0], x[0]}, bottom[4] = {x[0], x[0], x[0], x[0]};
        for (int64_t i = 0; i < N; ++i) {
            top[i % 4] = larger(top[i % 4], x[i]);
            bottom[i % 4] = smaller(bottom[i % 4], x[i]);
        }
        high[row] = larger(larger(top[0], top[1]), larger(top[2], top[3]));
        low[row] = smaller(smaller(bottom[0], bottom[1]), smaller(bottom[2], bottom[3]));
    }
}
