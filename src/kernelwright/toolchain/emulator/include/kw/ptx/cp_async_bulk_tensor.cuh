// kw/ptx/cp_async_bulk_tensor.cuh on the CPU. A load overwrites its destination with NaN at once, and with the tile at a
// random later time; a store reads its tile when a wait requires it.

#include "kw/ptx/mbarrier.cuh"

namespace kw {

struct alignas(64) TensorMap {
    unsigned char bytes[128];
};

// What struct_launch.py encodes in a TensorMap, the contiguous dimension first.
struct TensorMapFields {
    char* data;
    unsigned long long strides[2];
    unsigned sizes[3], box[3], element_bytes, swizzle;

    unsigned tile_bytes() const { return box[0] * box[1] * box[2] * element_bytes; }
    char* element(long long x, long long y, long long z) const {
        const bool is_inside = x >= 0 && y >= 0 && z >= 0 && x < sizes[0] && y < sizes[1] && z < sizes[2];
        return is_inside ? data + x * element_bytes + y * strides[0] + z * strides[1] : nullptr;
    }
};

struct TileCopy {
    TensorMapFields map;
    int x, y, z;
    unsigned smem, barrier;  // addresses

    TileCopy(const TensorMap* from, unsigned smem, unsigned barrier, int x, int y, int z)
        : x(x), y(y), z(z), smem(smem), barrier(barrier) {
        memcpy(&map, from, sizeof map);
    }
    // Calls visit(element in shared memory, element of the tensor or null).
    template <class Visit>
    void for_each_element(Visit visit) const {
        char* const memory = static_cast<char*>(kw_shared_pointer(smem & 0xff000000));
        unsigned at = smem & 0xffffff;
        for (unsigned k = 0; k < map.box[2]; ++k)
            for (unsigned j = 0; j < map.box[1]; ++j)
                for (unsigned i = 0; i < map.box[0]; ++i, at += map.element_bytes) {
                    const unsigned swizzled = at ^ ((at >> 7 & (map.swizzle / 16 - (map.swizzle > 0))) << 4);
                    visit(memory + swizzled, map.element(x + i, y + j, z + k));
                }
    }
    void poison() const { memset(kw_shared_pointer(smem), 0xff, map.tile_bytes()); }
    void load() const {
        for_each_element([&](char* to, const char* from) {
            from ? memcpy(to, from, map.element_bytes) : memset(to, 0, map.element_bytes);
        });
        mbarrier_complete_tx(barrier, map.tile_bytes());
    }
    void store() const {
        for_each_element([&](const char* from, char* to) {
            if (to) memcpy(to, from, map.element_bytes);
        });
    }
};

static_assert(sizeof(TileCopy) <= kKwTaskBytes);

inline void start_load(const TensorMap* map, unsigned smem, unsigned barrier, int x, int y, int z) {
    const TileCopy copy(map, smem, barrier, x, y, z);
    copy.poison();
    kw_run_later([](const void* task) { static_cast<const TileCopy*>(task)->load(); }, &copy, sizeof copy);
}

inline void prefetch_tensormap(const TensorMap*) {}

inline void cp_async_bulk_tensor_3d(void* smem, const TensorMap* map, unsigned long long* barrier, int x, int y, int z) {
    start_load(map, smem_u32(smem), smem_u32(barrier), x, y, z);
}

inline void cp_async_bulk_tensor_3d_multicast(void* smem, const TensorMap* map, unsigned long long* barrier,
                                              unsigned short blocks, int x, int y, int z) {
    for (unsigned block = 0; block < 16; ++block)
        if (blocks >> block & 1) start_load(map, mapa(smem, block), mapa(barrier, block), x, y, z);
}

inline void cp_async_bulk_prefetch_tensor_3d(const TensorMap*, int, int, int) {}

inline void cp_async_bulk_tensor_3d_store(const TensorMap* map, const void* smem, int x, int y, int z) {
    const TileCopy copy(map, smem_u32(smem), 0, x, y, z);
    kw_queue(kKwStoreQueue, [](const void* task) { static_cast<const TileCopy*>(task)->store(); }, &copy, sizeof copy);
}

inline void cp_async_bulk_tensor_2d(void* smem, const TensorMap* map, unsigned long long* barrier, int x, int y) {
    cp_async_bulk_tensor_3d(smem, map, barrier, x, y, 0);
}

inline void cp_async_bulk_tensor_2d_multicast(void* smem, const TensorMap* map, unsigned long long* barrier,
                                              unsigned short blocks, int x, int y) {
    cp_async_bulk_tensor_3d_multicast(smem, map, barrier, blocks, x, y, 0);
}

inline void cp_async_bulk_tensor_2d_store(const TensorMap* map, const void* smem, int x, int y) {
    cp_async_bulk_tensor_3d_store(map, smem, x, y, 0);
}

inline void cp_async_bulk_commit_group() { kw_commit_group(kKwStoreQueue); }

template <int N>
inline void cp_async_bulk_wait_group_read(int line = __builtin_LINE()) {
    kw_wait_group(line, kKwStoreQueue, N);
}

}  // namespace kw
