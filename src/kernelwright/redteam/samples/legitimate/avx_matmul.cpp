// Vector intrinsics if the processor has them, plain C++ otherwise and in the last columns.
//
// Problem: matmul
// Device: cpu
//
// kw: entry  matmul
// kw: dims   a: float32[M, K]; b: float32[K, N]
// kw: out    out: float32[M, N]
// kw: args   a, b, out, M, N, K
#include <cstdint>
#ifdef __x86_64__
#include <immintrin.h>

__attribute__((target("avx2,fma"))) static int64_t eight_wide(const float* a, const float* b, float* out, int64_t N,
                                                              int64_t K) {
    int64_t column = 0;
    for (; column + 8 <= N; column += 8) {
        __m256 sum = _mm256_setzero_ps();
        for (int64_t k = 0; k < K; ++k) {
            sum = _mm256_fmadd_ps(_mm256_set1_ps(a[k]), _mm256_loadu_ps(b + k * N + column), sum);
        }
        _mm256_storeu_ps(out + column, sum);
    }
    return column;
}
#endif

extern "C" void matmul(const float* a, const float* b, float* out, int64_t M, int64_t N, int64_t K) {
#pragma omp parallel for
    for (int64_t row = 0; row < M; ++row) {
        int64_t column = 0;
#ifdef __x86_64__
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
            column = eight_wide(a + row * K, b, out + row * N, N, K);
        }
#endif
        for (; column < N; ++column) {
            float sum = 0.0f;
            for (int64_t k = 0; k < K; ++k) sum += a[row * K + k] * b[k * N + column];
            out[row * N + column] = sum;
        }
    }
}
