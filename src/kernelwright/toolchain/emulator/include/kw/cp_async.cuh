// The functions of the package's kw/cp_async.cuh on the CPU: a copy is there at once, so that a wait that is missing does
// not show.

namespace kw {

inline void copy_16(void* shared, const void* global, bool there = true) {
    *static_cast<float4*>(shared) = there ? *static_cast<const float4*>(global) : float4{};
}

inline void copy_4(void* shared, const void* global, bool there = true) {
    *static_cast<float*>(shared) = there ? *static_cast<const float*>(global) : 0.0f;
}

inline void copies_commit() {}

template <int left>
inline void copies_wait() {}

}  // namespace kw
