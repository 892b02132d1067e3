// kw/ptx/wgmma.cuh on the CPU: each thread computes its elements in FP32 from the operands in shared memory, at random when
// it issues the operation or when a wait requires it.

#include "kw/emulated/tasks.cuh"
#include "kw/ptx/cvt.cuh"

namespace kw {

inline void wgmma_fence() {}
inline void wgmma_commit_group() { kw_commit_group(kKwMatrixQueue); }

template <int N>
inline void wgmma_wait_group(int line = __builtin_LINE()) {
    kw_wait_group(line, kKwMatrixQueue, N);
}

namespace emulated {

// An operand element, from its bits.
template <typename T>
struct Operand;
template <>
struct Operand<bf16> {
    using Bits = unsigned short;
    static float decode(Bits bits) { return to_float(bf16{bits}); }
};
template <>
struct Operand<f16> {
    using Bits = unsigned short;
    static float decode(Bits bits) { return to_float(f16{bits}); }
};
template <>
struct Operand<tf32> {
    using Bits = unsigned;
    static float decode(Bits bits) { return __uint_as_float(bits & 0xffffe000u); }
};
template <>
struct Operand<e4m3> {
    using Bits = unsigned char;
    static float decode(Bits bits) { return to_float(e4m3{bits}); }
};
template <>
struct Operand<e5m2> {
    using Bits = unsigned char;
    static float decode(Bits bits) { return to_float(e5m2{bits}); }
};

// Elements of a matrix in shared memory by its descriptor, with a 128-byte swizzle.
template <typename T, bool kTransposed>
struct DescribedMatrix {
    using Bits = typename Operand<T>::Bits;
    const char* memory;
    unsigned start, leading, stride;

    DescribedMatrix(unsigned long long descriptor, unsigned block, unsigned rows, int line)
        : start(static_cast<unsigned>(descriptor & 0x3fff) << 4),
          leading(static_cast<unsigned>(descriptor >> 16 & 0x3fff) << 4),
          stride(static_cast<unsigned>(descriptor >> 32 & 0x3fff) << 4) {
        if (descriptor >> 49 != 1 << 13) kw_fail(line, " multiplies a matrix without a 128-byte swizzle: not emulated");
        const unsigned last = start + (offset(rows - 1, 32 / sizeof(Bits) - 1) | 127);
        memory = static_cast<const char*>(kw_shared_pointer(line, block << 24 | start, last + 1 - start)) - start;
    }
    unsigned offset(unsigned row, unsigned k) const {
        constexpr unsigned kPanel = 128 / sizeof(Bits);
        return kTransposed ? row / kPanel * leading + k / 8 * stride + k % 8 * 128 + row % kPanel * sizeof(Bits)
                           : row / 8 * stride + row % 8 * 128 + k * sizeof(Bits);
    }

    // Calls visit(k, element) for the 32 bytes of a row along K.
    template <class Visit>
    void for_row(unsigned row, Visit visit) const {
        for (unsigned k = 0; k < 32 / sizeof(Bits); ++k) {
            const unsigned at = start + offset(row, k), swizzled = at ^ ((at >> 7 & 7) << 4);
            visit(k, Operand<T>::decode(*reinterpret_cast<const Bits*>(memory + swizzled)));
        }
    }
};

// One thread's part of a product: rows `row` and `row + 8`, and two columns of every eight.
template <typename A, typename B, int N, bool kTransposeA, bool kTransposeB>
struct MatrixProduct {
    static constexpr int kDepth = 32 / sizeof(typename Operand<A>::Bits);
    float* d;
    unsigned long long desc_a, desc_b;
    unsigned registers[4][4];  // of A, if it is not in shared memory: those of the four lanes with the same rows
    unsigned block, thread;
    int line;
    bool accumulate, a_in_registers;

    void load_a(float (&a)[2][kDepth]) const {
        if (a_in_registers) {
            if constexpr (sizeof(typename Operand<A>::Bits) == 2)
                for (int half = 0; half < 2; ++half)
                    for (int k = 0; k < kDepth; ++k) {
                        const unsigned two = registers[k % 8 / 2][k / 8 * 2 + half];
                        a[half][k] = Operand<A>::decode(static_cast<unsigned short>(two >> k % 2 * 16));
                    }
            return;
        }
        const DescribedMatrix<A, kTransposeA> matrix(desc_a, block, 64, line);
        for (int half = 0; half < 2; ++half)
            matrix.for_row(thread / 32 * 16 + thread % 32 / 4 + 8 * half, [&](int k, float x) { a[half][k] = x; });
    }
    void run() const {
        float a[2][kDepth];
        load_a(a);
        const DescribedMatrix<B, kTransposeB> matrix(desc_b, block, N, line);
        for (int i = 0; i < N / 4; ++i) {
            float sums[2] = {};
            matrix.for_row(i / 2 * 8 + thread % 4 * 2 + i % 2, [&](int k, float b) {
                sums[0] += a[0][k] * b;
                sums[1] += a[1][k] * b;
            });
            for (int half = 0; half < 2; ++half) {
                float& to = d[i / 2 * 4 + half * 2 + i % 2];
                to = (accumulate ? to : 0.0f) + sums[half];
            }
        }
    }
    void issue() {
        block = kw_cluster_rank();
        thread = kw_thread() % 128;
        queue(kKwMatrixQueue, *this);
    }
};

}  // namespace emulated

template <typename A, typename B, int N, bool kTransposeA = false, bool kTransposeB = false>
struct wgmma_mma_async {
    static_assert(N % 8 == 0 && N <= 256 && (sizeof(typename emulated::Operand<A>::Bits) == 2 || !(kTransposeA || kTransposeB)));
    static void issue(float (&d)[N / 2], unsigned long long desc_a, unsigned long long desc_b, bool accumulate,
                      int line = __builtin_LINE()) {
        emulated::MatrixProduct<A, B, N, kTransposeA, kTransposeB> product{d, desc_a, desc_b};
        product.line = line;
        product.accumulate = accumulate;
        product.issue();
    }
};

template <int N>
struct wgmma_mma_async_registers {
    static void issue(float (&d)[N / 2], const unsigned (&a)[4], unsigned long long desc_b, bool accumulate,
                      int line = __builtin_LINE()) {
        unsigned warp[32][4];
        kw_exchange(line, a, 4, warp[0]);
        emulated::MatrixProduct<f16, f16, N, false, false> product{d, 0, desc_b};
        memcpy(product.registers, warp[kw_lane() / 4 * 4], sizeof product.registers);
        product.line = line;
        product.accumulate = accumulate;
        product.a_in_registers = true;
        product.issue();
    }
};

}  // namespace kw
