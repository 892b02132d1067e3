// kw/ptx/mbarrier.cuh on the CPU.

#include "kw/emulated/tasks.cuh"
#include "kw/ptx/shared.cuh"

namespace kw {

template <int kArrivals = 1>
inline void mbarrier_init(unsigned long long* barrier) {
    __atomic_store_n(barrier, emulated::BarrierState{0, kArrivals, kArrivals, 0}.word(), __ATOMIC_RELEASE);
}

inline void fence_mbarrier_init() {}

inline void mbarrier_arrive(unsigned long long* barrier) { emulated::update_barrier(barrier, 1, 0); }

inline void mbarrier_arrive_cluster(unsigned long long* barrier, unsigned block, int line = __builtin_LINE()) {
    emulated::update_barrier(kw_shared_pointer(line, emulated::address_in(barrier, block), 8), 1, 0);
}

inline void mbarrier_arrive_expect_tx(unsigned long long* barrier, unsigned bytes) {
    emulated::update_barrier(barrier, 1, static_cast<int>(bytes));
}

inline bool mbarrier_try_wait_parity(unsigned long long* barrier, unsigned parity, int line = __builtin_LINE()) {
    auto is_complete = [&] { return __atomic_load_n(barrier, __ATOMIC_ACQUIRE) >> 63 != parity; };
    if (is_complete()) return true;
    kw_poll(line, "an mbarrier", true);
    return is_complete();
}

inline void mbarrier_wait_parity(unsigned long long* barrier, unsigned parity, int line = __builtin_LINE()) {
    while (__atomic_load_n(barrier, __ATOMIC_ACQUIRE) >> 63 == parity) kw_poll(line, "an mbarrier", false);
}

}  // namespace kw
