// Three std::threads that are started in every call and joined before it returns.
//
// Problem: row_sum
// Device: cpu
//
// kw: entry  row_sum
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M]
// kw: args   x, out, M, N
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

extern "C" void row_sum(const float* x, float* out, int64_t M, int64_t N) {
    std::vector<std::thread> threads;
    for (int64_t first = 0; first < 3; ++first) {
        threads.emplace_back([=] {
            for (int64_t row = first; row < M; row += 3) {
                out[row] = static_cast<float>(std::accumulate(x + row * N, x + (row + 1) * N, 0.0));
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
}
