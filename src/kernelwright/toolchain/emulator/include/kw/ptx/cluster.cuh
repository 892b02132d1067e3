// kw/ptx/cluster.cuh on the CPU.

#include "kw/ptx/mbarrier.cuh"

namespace kw {

inline unsigned cluster_ctarank() { return kw_cluster_rank(); }

inline unsigned mapa(const void* smem, unsigned block) { return emulated::address_in(smem, block); }

inline void barrier_cluster_arrive_init() { kw_cluster_arrive(); }
inline void barrier_cluster_arrive() { kw_cluster_arrive(); }
inline void barrier_cluster_wait(int line = __builtin_LINE()) { kw_cluster_wait(line); }

inline float4 ld_shared_cluster_v4(unsigned address, int line = __builtin_LINE()) {
    return *static_cast<const float4*>(kw_shared_pointer(line, address, sizeof(float4)));
}

namespace emulated {

template <typename T>
struct Store {
    unsigned address, barrier;
    T value;
    int line;

    void run() const {
        memcpy(kw_shared_pointer(line, address, sizeof(T)), &value, sizeof(T));
        complete_bytes(line, barrier, sizeof(T));
    }
};

}  // namespace emulated

inline void st_async(unsigned address, float value, unsigned barrier, int line = __builtin_LINE()) {
    emulated::run_later(emulated::Store<float>{address, barrier, value, line});
}
inline void st_async(unsigned address, float2 value, unsigned barrier, int line = __builtin_LINE()) {
    emulated::run_later(emulated::Store<float2>{address, barrier, value, line});
}
inline void st_async(unsigned address, float4 value, unsigned barrier, int line = __builtin_LINE()) {
    emulated::run_later(emulated::Store<float4>{address, barrier, value, line});
}

}  // namespace kw
