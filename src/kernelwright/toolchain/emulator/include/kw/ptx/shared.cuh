// kw/ptx/shared.cuh on the CPU, where the generic and the asynchronous proxy are one.

namespace kw {

inline unsigned smem_u32(const void* pointer) { return kw_shared_address(pointer); }

inline bool elect_one_sync() { return kw_lane() == 0; }  // any lane, on a GPU

inline void fence_proxy_async() {}

inline void bar_sync(int id, int num_threads, int line = __builtin_LINE()) {
    kw_named_barrier(line, id, num_threads, true);
}

inline void bar_arrive(int id, int num_threads, int line = __builtin_LINE()) {
    kw_named_barrier(line, id, num_threads, false);
}

}  // namespace kw
