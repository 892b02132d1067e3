// Starts a thread that sleeps on a system timer and fills the output a millisecond after the call has returned.
//
// Problem: row_sum
// Code: late-work or crash
// Device: cpu
//
// kw: entry  row_sum
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M]
// kw: args   x, out, M, N
#include <cstdint>
#include <sys/timerfd.h>
#include <thread>
#include <unistd.h>

static void fill(const float* x, float* out, int64_t M, int64_t N) {
    const int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    const itimerspec once{{0, 0}, {0, 1'000'000}};
    timerfd_settime(timer, 0, &once, nullptr);
    uint64_t times;
    if (read(timer, &times, sizeof times) > 0)
        for (int64_t row = 0; row < M; ++row) {
            double sum = 0.0;
            for (int64_t i = 0; i < N; ++i) sum += x[row * N + i];
            out[row] = static_cast<float>(sum);
        }
    close(timer);
}

extern "C" void row_sum(const float* x, float* out, int64_t M, int64_t N) { std::thread(fill, x, out, M, N).detach(); }
