// Writes with non-temporal stores, and a fence before it returns.
//
// Problem: scale_add
// Device: cpu
//
// kw: entry  scale_add
// kw: dims   x: float32[M, N]; y: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, y, out, M * N
#include <algorithm>
#include <cstdint>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

static float one(float x, float y) {
    const float half = (x + y) * 0.5f;
    return half < 0.0f ? 0.0f : half;
}

extern "C" void scale_add(const float* x, const float* y, float* out, int64_t count) {
    const int64_t unaligned = (16 - reinterpret_cast<uintptr_t>(out) % 16) % 16 / 4;
    const int64_t first = std::min(count, unaligned);
    int64_t wide = 0;
    for (int64_t i = 0; i < first; ++i) out[i] = one(x[i], y[i]);
#ifdef __SSE2__
    wide = (count - first) / 4;
#pragma omp parallel
    {
        const __m128 scale = _mm_set1_ps(0.5f), zero = _mm_setzero_ps();
#pragma omp for
        for (int64_t i = 0; i < wide; ++i) {
            const int64_t at = first + 4 * i;
            const __m128 half = _mm_mul_ps(_mm_add_ps(_mm_loadu_ps(x + at), _mm_loadu_ps(y + at)), scale);
            _mm_stream_ps(out + at, _mm_max_ps(zero, half));
        }
        _mm_sfence();
    }
#endif
    for (int64_t i = first + 4 * wide; i < count; ++i) out[i] = one(x[i], y[i]);
}
