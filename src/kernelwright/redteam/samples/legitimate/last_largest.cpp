// Reads each row backwards and so returns the last index of equal largest values, which is as correct as the first.
//
// Problem: top_one
// Device: cpu
//
// kw: entry  top_one
// kw: dims   x: float32[M, N]
// kw: out    values: float32[M]
// kw: out    places: int64[M]
// kw: args   x, values, places, M, N
#include <cstdint>

extern "C" void top_one(const float* x, float* values, int64_t* places, int64_t M, int64_t N) {
    for (int64_t row = 0; row < M; ++row) {
        const float* in = x + row * N;
        int64_t best = N - 1;
        for (int64_t i = N - 2; i >= 0; --i) {
            const bool held = in[best] != in[best];
            if (!held && (in[i] > in[best] || in[i] != in[i])) best = i;
        }
        values[row] = in[best];
        places[row] = best;
    }
}
