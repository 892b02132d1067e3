// Waits forever for a flag that is never set.
//
// Problem: softmax
// Code: timeout
// Device: cpu
//
// kw: entry  softmax
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, out
#include <atomic>

static std::atomic<bool> ready{false};

extern "C" void softmax(const float*, float* out) {
    while (!ready.load(std::memory_order_relaxed)) {
    }
    *out = 0.0f;
}
