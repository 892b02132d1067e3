// kw/ptx/mbarrier.cuh on the CPU, for the threads of one block: the parity of the phase, arrivals expected, and pending.

namespace kw {

constexpr unsigned long long kPhaseBit = 1ull << 63, kPendingMask = (1ull << 31) - 1;

template <int kArrivals = 1>
inline void mbarrier_init(unsigned long long* barrier) {
    __atomic_store_n(barrier, static_cast<unsigned long long>(kArrivals) << 32 | kArrivals, __ATOMIC_RELEASE);
}

inline void fence_mbarrier_init() {}

inline void mbarrier_arrive(unsigned long long* barrier) {
    unsigned long long old = __atomic_load_n(barrier, __ATOMIC_ACQUIRE), next;
    do {
        const unsigned long long expected = old >> 32 & kPendingMask;
        next = (old & kPendingMask) > 1 ? old - 1 : ((old ^ kPhaseBit) & ~kPendingMask) | expected;
    } while (!__atomic_compare_exchange_n(barrier, &old, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    kw_signal();
}

inline bool mbarrier_try_wait_parity(unsigned long long* barrier, unsigned parity) {
    return __atomic_load_n(barrier, __ATOMIC_ACQUIRE) >> 63 != parity;
}

inline void mbarrier_wait_parity(unsigned long long* barrier, unsigned parity, int line = __builtin_LINE()) {
    if (mbarrier_try_wait_parity(barrier, parity)) return;
    do kw_poll(line);
    while (!mbarrier_try_wait_parity(barrier, parity));
    kw_signal();  // this thread goes on
}

}  // namespace kw
