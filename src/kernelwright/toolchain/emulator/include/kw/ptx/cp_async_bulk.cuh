// kw/ptx/cp_async_bulk.cuh on the CPU. Bytes in shared memory are NaN until the copy, which comes at a random later time.

#include "kw/emulated/tasks.cuh"
#include "kw/ptx/shared.cuh"

namespace kw {

namespace emulated {

struct BulkLoad {
    const char* gmem;
    unsigned smem, bytes, barrier;
    int line;

    void run() const {
        memcpy(kw_shared_pointer(line, smem, bytes), gmem, bytes);
        complete_bytes(line, barrier, bytes);
    }
};

}  // namespace emulated

inline void cp_async_bulk(void* smem, const void* gmem, unsigned bytes, unsigned long long* barrier,
                          int line = __builtin_LINE()) {
    const unsigned to = smem_u32(smem);
    if (to % 16 || reinterpret_cast<uintptr_t>(gmem) % 16 || bytes % 16)
        kw_fail(line, " copies bytes whose addresses and number are not multiples of 16");
    memset(kw_shared_pointer(line, to, bytes), 0xff, bytes);
    emulated::run_later(emulated::BulkLoad{static_cast<const char*>(gmem), to, bytes, smem_u32(barrier), line});
}

}  // namespace kw
