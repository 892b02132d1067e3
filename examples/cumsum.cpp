// Running sums in two walks: each thread sums its block of rows, then knows where its block starts and writes it out.
// The 32 columns are the vector, so a step of every chain is four wide additions. The input is read twice; sums are kept
// in FP64, as the reference keeps them, since a float that has grown to hundreds drops the low bits of what is added.
//
// kw: entry  cumsum
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, out, M, N
#include <algorithm>
#include <cstdint>
#include <vector>

constexpr int64_t kBlock = 512;  // rows; 64 KB of 32 columns

static void add_rows(const float* __restrict__ x, double* __restrict__ sum, int64_t rows, int64_t N) {
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t column = 0; column < N; ++column) sum[column] += x[row * N + column];
}

static void write_rows(const float* __restrict__ x, float* __restrict__ out, double* __restrict__ sum, int64_t rows,
                       int64_t N) {
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t column = 0; column < N; ++column) {
            sum[column] += x[row * N + column];
            out[row * N + column] = static_cast<float>(sum[column]);
        }
}

extern "C" void cumsum(const float* x, float* out, int64_t M, int64_t N) {
    const int64_t blocks = (M + kBlock - 1) / kBlock;
    std::vector<double> starts(blocks * N, 0.0);
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int64_t b = 0; b < blocks - 1; ++b)
            add_rows(x + b * kBlock * N, &starts[(b + 1) * N], kBlock, N);
#pragma omp single
        for (int64_t b = 1; b < blocks; ++b)
            for (int64_t column = 0; column < N; ++column) starts[b * N + column] += starts[(b - 1) * N + column];
#pragma omp for schedule(static)
        for (int64_t b = 0; b < blocks; ++b) {
            const int64_t rows = std::min(kBlock, M - b * kBlock);
            write_rows(x + b * kBlock * N, out + b * kBlock * N, &starts[b * N], rows, N);
        }
    }
}
