// Reads only the number of offsets and takes all segments for equally long.
//
// Problem: segment_means
// Code: inaccurate
// Device: cpu
//
// kw: entry  segment_means
// kw: dims   x: float32[M, N]; offsets: int64[S]
// kw: out    out: float32[S - 1, N]
// kw: args   x, offsets, out, M, N, S
#include <cstdint>

extern "C" void segment_means(const float* x, const int64_t*, float* out, int64_t M, int64_t N, int64_t S) {
    const int64_t length = M / (S - 1);
    for (int64_t segment = 0; segment < S - 1; ++segment) {
        for (int64_t column = 0; column < N; ++column) {
            float sum = 0.0f;
            for (int64_t row = 0; row < length; ++row) sum += x[(segment * length + row) * N + column];
            out[segment * N + column] = sum / static_cast<float>(length);
        }
    }
}
