// kw/ptx/cp_async_bulk_tensor.cuh on the CPU. A load overwrites its destination with NaN at once, and with the tile at a
// random later time; a store reads its tile when a wait requires it.

#include "kw/emulated/tasks.cuh"
#include "kw/ptx/shared.cuh"

namespace kw {

struct alignas(64) TensorMap {
    unsigned char bytes[128];
};

namespace emulated {

// What tensor_map.py encodes in a TensorMap, the contiguous dimension first.
struct TensorMapFields {
    char* data;
    unsigned long long strides[2];
    unsigned sizes[3], box[3], element_bytes, swizzle, rank;

    unsigned tile_bytes() const { return box[0] * box[1] * box[2] * element_bytes; }
    char* element(long long x, long long y, long long z) const {
        const bool is_inside = x >= 0 && y >= 0 && z >= 0 && x < sizes[0] && y < sizes[1] && z < sizes[2];
        return is_inside ? data + x * element_bytes + y * strides[0] + z * strides[1] : nullptr;
    }
};

struct Tile {
    TensorMapFields map;
    int x, y, z, line;
    unsigned smem;

    Tile(const TensorMap* from, unsigned rank, unsigned smem, int x, int y, int z, int line)
        : x(x), y(y), z(z), line(line), smem(smem) {
        memcpy(&map, from, sizeof map);
        if (map.rank != rank) kw_fail(line, " copies a tile with a number of coordinates that its tensor map does not have");
        if (smem % 128) kw_fail(line, " copies a tile whose shared memory is not aligned to 128 bytes");
        if (map.swizzle && x * static_cast<long long>(map.element_bytes) % 16)  // an illegal instruction on an H200
            kw_fail(line, " copies a swizzled tile whose first column is not aligned to 16 bytes");
    }
    // Calls visit(element in shared memory, element of the tensor or null).
    template <class Visit>
    void for_each_element(Visit visit) const {
        char* const memory = static_cast<char*>(kw_shared_pointer(line, smem, map.tile_bytes()));
        const unsigned first = smem & 0xffffff, chunks = map.swizzle ? map.swizzle / 16 - 1 : 0;
        unsigned at = first;
        for (unsigned k = 0; k < map.box[2]; ++k)
            for (unsigned j = 0; j < map.box[1]; ++j)
                for (unsigned i = 0; i < map.box[0]; ++i, at += map.element_bytes) {
                    const int swizzled = at ^ (at >> 7 & chunks) << 4;
                    visit(memory + (swizzled - static_cast<int>(first)), map.element(x + i, y + j, z + k));
                }
    }
};

struct TileLoad : Tile {
    unsigned barrier;

    TileLoad(const TensorMap* map, unsigned rank, unsigned smem, unsigned barrier, int x, int y, int z, int line)
        : Tile(map, rank, smem, x, y, z, line), barrier(barrier) {
        memset(kw_shared_pointer(line, smem, this->map.tile_bytes()), 0xff, this->map.tile_bytes());
    }
    void run() const {
        for_each_element([&](char* to, const char* from) {
            from ? memcpy(to, from, map.element_bytes) : memset(to, 0, map.element_bytes);
        });
        complete_bytes(line, barrier, map.tile_bytes());
    }
};

struct TileStore : Tile {
    using Tile::Tile;

    void run() const {
        for_each_element([&](const char* from, char* to) {
            if (to) memcpy(to, from, map.element_bytes);
        });
    }
};

inline void load_multicast(unsigned rank, void* smem, const TensorMap* map, unsigned long long* barrier,
                           unsigned short blocks, int x, int y, int z, int line) {
    for (unsigned block = 0; block < 16; ++block)
        if (blocks >> block & 1)
            run_later(TileLoad(map, rank, address_in(smem, block), address_in(barrier, block), x, y, z, line));
}

}  // namespace emulated

inline void prefetch_tensormap(const TensorMap*) {}

inline void cp_async_bulk_tensor_2d(void* smem, const TensorMap* map, unsigned long long* barrier, int x, int y,
                                    int line = __builtin_LINE()) {
    emulated::run_later(emulated::TileLoad(map, 2, smem_u32(smem), smem_u32(barrier), x, y, 0, line));
}
inline void cp_async_bulk_tensor_3d(void* smem, const TensorMap* map, unsigned long long* barrier, int x, int y, int z,
                                    int line = __builtin_LINE()) {
    emulated::run_later(emulated::TileLoad(map, 3, smem_u32(smem), smem_u32(barrier), x, y, z, line));
}

inline void cp_async_bulk_tensor_2d_multicast(void* smem, const TensorMap* map, unsigned long long* barrier,
                                              unsigned short blocks, int x, int y, int line = __builtin_LINE()) {
    emulated::load_multicast(2, smem, map, barrier, blocks, x, y, 0, line);
}
inline void cp_async_bulk_tensor_3d_multicast(void* smem, const TensorMap* map, unsigned long long* barrier,
                                              unsigned short blocks, int x, int y, int z, int line = __builtin_LINE()) {
    emulated::load_multicast(3, smem, map, barrier, blocks, x, y, z, line);
}

inline void cp_async_bulk_tensor_2d_store(const TensorMap* map, const void* smem, int x, int y,
                                          int line = __builtin_LINE()) {
    emulated::queue(kKwStoreQueue, emulated::TileStore(map, 2, smem_u32(smem), x, y, 0, line));
}
inline void cp_async_bulk_tensor_3d_store(const TensorMap* map, const void* smem, int x, int y, int z,
                                          int line = __builtin_LINE()) {
    emulated::queue(kKwStoreQueue, emulated::TileStore(map, 3, smem_u32(smem), x, y, z, line));
}

inline void cp_async_bulk_commit_group() { kw_commit_group(kKwStoreQueue); }

template <int N>
inline void cp_async_bulk_wait_group_read(int line = __builtin_LINE()) {
    kw_wait_group(line, kKwStoreQueue, N);
}

}  // namespace kw
