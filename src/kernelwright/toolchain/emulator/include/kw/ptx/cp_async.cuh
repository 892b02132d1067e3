// kw/ptx/cp_async.cuh on the CPU. A copy overwrites its destination with NaN at once, and with what it copies when a wait
// requires it; where accesses are counted, it completes immediately.

#include "kw/emulated/tasks.cuh"
#include "kw/ptx/shared.cuh"

namespace kw {

namespace emulated {

template <typename T>
struct ElementCopy {
    T* smem;
    const T* gmem;  // null for zeros

    void run() const { *smem = gmem ? *gmem : T{}; }
};

template <typename T>
inline void start_copy(void* smem, const void* gmem, bool pred) {
    const ElementCopy<T> copy = {static_cast<T*>(smem), pred ? static_cast<const T*>(gmem) : nullptr};
    if (!kw_defers_copies()) return copy.run();
    memset(smem, 0xff, sizeof(T));
    queue(kKwCopyQueue, copy);
}

}  // namespace emulated

inline void cp_async_cg_16(void* smem, const void* gmem, bool pred = true) {
    emulated::start_copy<float4>(smem, gmem, pred);
}

inline void cp_async_ca_4(void* smem, const void* gmem, bool pred = true) {
    emulated::start_copy<float>(smem, gmem, pred);
}

inline void cp_async_commit_group() { kw_commit_group(kKwCopyQueue); }

template <int N>
inline void cp_async_wait_group(int line = __builtin_LINE()) {
    kw_wait_group(line, kKwCopyQueue, N);
}

// At once: the thread's copies complete before it arrives.
inline void cp_async_mbarrier_arrive_noinc(unsigned long long* barrier, int line = __builtin_LINE()) {
    kw_commit_group(kKwCopyQueue);
    kw_wait_group(line, kKwCopyQueue, 0);
    emulated::update_barrier(barrier, 1, 0);
}

}  // namespace kw
