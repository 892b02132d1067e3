// kw/ptx/mbarrier.cuh on the CPU. From the highest bit: the parity of the phase, arrivals that a phase expects (19 bits),
// pending arrivals (20), pending bytes (24, negative where copies came before they were expected).

#include "kw/ptx/shared.cuh"

namespace kw {

struct BarrierState {
    unsigned parity, expected, pending;
    int bytes;

    static BarrierState of(unsigned long long word) {
        return {static_cast<unsigned>(word >> 63), static_cast<unsigned>(word >> 44) & 0x7ffff,
                static_cast<unsigned>(word >> 24) & 0xfffff, static_cast<int>(word << 8 & 0xffffff00) >> 8};
    }
    unsigned long long word() const {
        return static_cast<unsigned long long>(parity) << 63 | static_cast<unsigned long long>(expected) << 44 |
               static_cast<unsigned long long>(pending) << 24 | (static_cast<unsigned>(bytes) & 0xffffff);
    }
};

inline void mbarrier_update(unsigned long long* barrier, unsigned arrivals, int bytes) {
    unsigned long long old = __atomic_load_n(barrier, __ATOMIC_ACQUIRE), next;
    do {
        BarrierState state = BarrierState::of(old);
        state.pending -= arrivals;
        state.bytes += bytes;
        if (state.pending == 0 && state.bytes == 0) {
            state.parity ^= 1;
            state.pending = state.expected;
        }
        next = state.word();
    } while (!__atomic_compare_exchange_n(barrier, &old, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    kw_signal();
}

template <int kArrivals = 1>
inline void mbarrier_init(unsigned long long* barrier) {
    __atomic_store_n(barrier, BarrierState{0, kArrivals, kArrivals, 0}.word(), __ATOMIC_RELEASE);
}

inline void fence_mbarrier_init() {}

inline void mbarrier_arrive(unsigned long long* barrier) { mbarrier_update(barrier, 1, 0); }

inline void mbarrier_arrive_expect_tx(unsigned long long* barrier, unsigned bytes) {
    mbarrier_update(barrier, 1, static_cast<int>(bytes));
}

// At an address from smem_u32 or mapa.
inline void mbarrier_complete_tx(unsigned barrier, unsigned bytes) {
    mbarrier_update(static_cast<unsigned long long*>(kw_shared_pointer(barrier)), 0, -static_cast<int>(bytes));
}

inline void mbarrier_arrive_cluster(unsigned long long* barrier, unsigned block) {
    mbarrier_arrive(static_cast<unsigned long long*>(kw_shared_pointer(mapa(barrier, block))));
}

inline bool mbarrier_try_wait_parity(unsigned long long* barrier, unsigned parity) {
    return __atomic_load_n(barrier, __ATOMIC_ACQUIRE) >> 63 != parity;
}

inline void mbarrier_wait_parity(unsigned long long* barrier, unsigned parity, int line = __builtin_LINE()) {
    while (!mbarrier_try_wait_parity(barrier, parity)) kw_poll(line, "an mbarrier");
}

}  // namespace kw
