// kw/ptx/cluster.cuh on the CPU.

#include "kw/ptx/mbarrier.cuh"

namespace kw {

inline unsigned cluster_ctarank() { return kw_cluster_rank(); }

inline void barrier_cluster_arrive_init() { kw_cluster_arrive(); }
inline void barrier_cluster_arrive() { kw_cluster_arrive(); }
inline void barrier_cluster_wait(int line = __builtin_LINE()) { kw_cluster_wait(line); }

inline float4 ld_shared_cluster_v4(unsigned address) { return *static_cast<const float4*>(kw_shared_pointer(address)); }

template <typename T>
inline void st_async(unsigned address, T value, unsigned barrier) {
    struct Store {
        unsigned address, barrier;
        T value;
    } const store = {address, barrier, value};
    auto run = [](const void* task) {
        const Store& store = *static_cast<const Store*>(task);
        *static_cast<T*>(kw_shared_pointer(store.address)) = store.value;
        mbarrier_complete_tx(store.barrier, sizeof(T));
    };
    kw_run_later(run, &store, sizeof store);
}

}  // namespace kw
