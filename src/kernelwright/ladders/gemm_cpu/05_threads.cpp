// All cores: row blocks are distributed over threads, which share the packed panel of B.
//
// rung: question   Does it scale with the number of cores?
// rung: hypothesis Row blocks are independent. With n cores n times faster, except for the packing of B, which is
// rung: hypothesis serial.
// rung: next       Tile and block sizes were a guess: choose sizes that fill the registers and the caches.
//
// kw: entry  gemm_threads
// kw: dims   a: float32[M, K]; b: float32[K, N]; c: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   a, b, c, out, M, N, K, alpha, beta
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__AVX512F__)
constexpr int64_t WIDTH = 16;
#elif defined(__AVX__)
constexpr int64_t WIDTH = 8;
#else
constexpr int64_t WIDTH = 4;
#endif
typedef float Vector __attribute__((vector_size(WIDTH * sizeof(float))));

constexpr int64_t MR = 8, VECTORS = 2, NR = VECTORS * WIDTH;  // micro-tile, in registers
constexpr int64_t MC = 128, KC = 256, NC = 4096;  // A panel: L2; B strip: L1; B panel: L3

// Packs rows of A into strips of MR rows, ordered by k, padded with zeros.
static void pack_a(const float* a, float* to, int64_t rows, int64_t depth, int64_t K) {
    for (int64_t i = 0; i < rows; i += MR)
        for (int64_t k = 0; k < depth; ++k)
            for (int64_t r = 0; r < MR; ++r) *to++ = i + r < rows ? a[(i + r) * K + k] : 0.0f;
}

// Packs columns of B into strips of NR columns, ordered by k, padded with zeros.
static void pack_b(const float* b, float* to, int64_t depth, int64_t columns, int64_t N) {
    for (int64_t j = 0; j < columns; j += NR)
        for (int64_t k = 0; k < depth; ++k, to += NR) {
            const int64_t there = std::min(NR, columns - j);
            std::memcpy(to, b + k * N + j, there * sizeof(float));
            if (there < NR) std::memset(to + there, 0, (NR - there) * sizeof(float));
        }
}

// Micro-kernel: accumulates a tile of MR x NR in MR * VECTORS independent vectors.
static void tile(const float* __restrict__ a, const float* __restrict__ b, float* out, int64_t N, int64_t depth,
                 int64_t rows, int64_t columns, float alpha) {
    Vector sum[MR][VECTORS] = {};
    for (int64_t k = 0; k < depth; ++k, a += MR, b += NR) {
        Vector held[VECTORS];
        for (int64_t v = 0; v < VECTORS; ++v) std::memcpy(&held[v], b + v * WIDTH, sizeof(Vector));
#pragma GCC unroll 16
        for (int64_t r = 0; r < MR; ++r)
#pragma GCC unroll 4
            for (int64_t v = 0; v < VECTORS; ++v) sum[r][v] += a[r] * held[v];
    }
    if (rows == MR && columns == NR) {
        for (int64_t r = 0; r < MR; ++r)
            for (int64_t v = 0; v < VECTORS; ++v) {
                Vector before;
                std::memcpy(&before, out + r * N + v * WIDTH, sizeof(Vector));
                before += alpha * sum[r][v];
                std::memcpy(out + r * N + v * WIDTH, &before, sizeof(Vector));
            }
        return;
    }
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < columns; ++j) out[r * N + j] += alpha * sum[r][j / WIDTH][j % WIDTH];
}

extern "C" void gemm_threads(const float* a, const float* b, const float* c, float* out, int64_t M, int64_t N,
                             int64_t K, double alpha, double beta) {
    for (int64_t i = 0; i < M * N; ++i) out[i] = beta != 0.0 ? float(beta) * c[i] : 0.0f;
    const int64_t across = std::min(NC, (N + NR - 1) / NR * NR);
    std::vector<float> panel_b(KC * across);
    for (int64_t jc = 0; jc < N; jc += NC)
        for (int64_t kc = 0; kc < K; kc += KC) {
            const int64_t width = std::min(NC, N - jc), depth = std::min(KC, K - kc);
            pack_b(b + kc * N + jc, panel_b.data(), depth, width, N);
#pragma omp parallel for schedule(dynamic)
            for (int64_t ic = 0; ic < M; ic += MC) {
                const int64_t height = std::min(MC, M - ic);
                thread_local std::vector<float> panel_a(MC * KC + MR * KC);
                pack_a(a + ic * K + kc, panel_a.data(), height, depth, K);
                for (int64_t j = 0; j < width; j += NR)
                    for (int64_t i = 0; i < height; i += MR)
                        tile(panel_a.data() + i * depth, panel_b.data() + j * depth, out + (ic + i) * N + jc + j, N,
                             depth, std::min(MR, height - i), std::min(NR, width - j), float(alpha));
            }
        }
}
