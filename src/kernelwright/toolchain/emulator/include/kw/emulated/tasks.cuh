// What the wrappers of asynchronous operations share on the CPU; a kernel cannot include it.

namespace kw::emulated {

// The word of an mbarrier, from the highest bit: the parity of the phase, arrivals that a phase expects (19 bits), pending
// arrivals (20), pending bytes (24, negative where copies came before they were expected).
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

inline void update_barrier(void* barrier, unsigned arrivals, int bytes) {
    auto* const word = static_cast<unsigned long long*>(barrier);
    unsigned long long old = __atomic_load_n(word, __ATOMIC_ACQUIRE), next;
    do {
        BarrierState state = BarrierState::of(old);
        state.pending -= arrivals;
        state.bytes += bytes;
        if (state.pending == 0 && state.bytes == 0) {
            state.parity ^= 1;
            state.pending = state.expected;
        }
        next = state.word();
    } while (!__atomic_compare_exchange_n(word, &old, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    kw_signal();
}

// Counts bytes at the mbarrier of an address.
inline void complete_bytes(int line, unsigned barrier, unsigned bytes) {
    update_barrier(kw_shared_pointer(line, barrier, 8), 0, -static_cast<int>(bytes));
}

inline unsigned address_in(const void* smem, unsigned block) {
    return (kw_shared_address(smem) & 0xffffff) | block << 24;
}

// A task is an object with `run()`.
template <class Task>
inline void run_task(const void* task) {
    static_cast<const Task*>(task)->run();
}
template <class Task>
inline void run_later(const Task& task) {
    static_assert(sizeof(Task) <= kKwTaskBytes && std::is_trivially_copyable_v<Task>);
    kw_run_later(run_task<Task>, &task, sizeof task);
}
template <class Task>
inline void queue(KwQueue queue, const Task& task) {
    static_assert(sizeof(Task) <= kKwTaskBytes && std::is_trivially_copyable_v<Task>);
    kw_queue(queue, run_task<Task>, &task, sizeof task);
}

}  // namespace kw::emulated
