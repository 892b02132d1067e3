// Signals a persistent thread to do the work and returns before it is done.
//
// Problem: gelu
// Code: late-work or crash
// Device: cpu
//
// kw: entry  gelu
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, out, M * N
#include <atomic>
#include <cmath>
#include <cstdint>
#include <thread>

static const float* from;
static float* to;
static int64_t many;
static std::atomic<int> calls{0};

static void serve() {
    for (int seen = 0;; ++seen) {
        calls.wait(seen);
        const float* x = from;
        float* out = to;
        for (int64_t i = 0, count = many; i < count; ++i) out[i] = 0.5f * x[i] * std::erfc(-0.70710678f * x[i]);
    }
}

extern "C" void gelu(const float* x, float* out, int64_t count) {
    static const bool started = (std::thread(serve).detach(), true);
    from = x, to = out, many = started ? count : 0;
    ++calls;
    calls.notify_one();
}
