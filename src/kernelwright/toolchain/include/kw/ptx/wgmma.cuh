// Warpgroup-level D = A B + D on tensor cores, operands in shared memory (sm_90a).
// PTX ISA, "wgmma.mma_async". D is (64, N) in FP32: thread t of the warpgroup holds in d[4 j + 2 h + e] the element of
// row 16 (t / 32) + t % 32 / 4 + 8 h and column 8 j + 2 (t % 4) + e.
#pragma once

#include "kw/ptx/cvt.cuh"

namespace kw {

// Orders accesses to registers and shared memory before the wgmmas that follow.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most N of the warpgroup's most recent groups are pending.
template <int N>
__device__ __forceinline__ void wgmma_wait_group() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// wgmma_mma_async<A, B, N>::issue(d, desc_a, desc_b, accumulate) multiplies 32 bytes along K; D = A B if not
// `accumulate`. The descriptors are those of shared_matrix.cuh. 16-bit operands may be M- or N-major (transposed).
template <typename A, typename B, int N, bool kTransposeA = false, bool kTransposeB = false>
struct wgmma_mma_async;

// For each N: the placeholders of D and its registers, then the placeholders of the other operands.
#define KW_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define KW_D16(i) KW_D4(i), KW_D4(i + 4), KW_D4(i + 8), KW_D4(i + 12)
#define KW_D64(i) KW_D16(i), KW_D16(i + 16), KW_D16(i + 32), KW_D16(i + 48)
#define KW_LIST_8 \
    "%0, %1, %2, %3"
#define KW_REGISTERS_8 KW_D4(0)
#define KW_DESC_8 "%4, %5"
#define KW_PRED_8 "%6"
#define KW_TRANS_8 "%7, %8"
#define KW_LIST_16 \
    "%0, %1, %2, %3, %4, %5, %6, %7"
#define KW_REGISTERS_16 KW_D4(0), KW_D4(4)
#define KW_DESC_16 "%8, %9"
#define KW_PRED_16 "%10"
#define KW_TRANS_16 "%11, %12"
#define KW_LIST_32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define KW_REGISTERS_32 KW_D16(0)
#define KW_DESC_32 "%16, %17"
#define KW_PRED_32 "%18"
#define KW_TRANS_32 "%19, %20"
#define KW_LIST_48 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23"
#define KW_REGISTERS_48 KW_D16(0), KW_D4(16), KW_D4(20)
#define KW_DESC_48 "%24, %25"
#define KW_PRED_48 "%26"
#define KW_TRANS_48 "%27, %28"
#define KW_LIST_64 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KW_REGISTERS_64 KW_D16(0), KW_D16(16)
#define KW_DESC_64 "%32, %33"
#define KW_PRED_64 "%34"
#define KW_TRANS_64 "%35, %36"
#define KW_LIST_80 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39"
#define KW_REGISTERS_80 KW_D16(0), KW_D16(16), KW_D4(32), KW_D4(36)
#define KW_DESC_80 "%40, %41"
#define KW_PRED_80 "%42"
#define KW_TRANS_80 "%43, %44"
#define KW_LIST_96 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
    "%44, %45, %46, %47"
#define KW_REGISTERS_96 KW_D16(0), KW_D16(16), KW_D16(32)
#define KW_DESC_96 "%48, %49"
#define KW_PRED_96 "%50"
#define KW_TRANS_96 "%51, %52"
#define KW_LIST_112 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
    "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55"
#define KW_REGISTERS_112 KW_D16(0), KW_D16(16), KW_D16(32), KW_D4(48), KW_D4(52)
#define KW_DESC_112 "%56, %57"
#define KW_PRED_112 "%58"
#define KW_TRANS_112 "%59, %60"
#define KW_LIST_128 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
    "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define KW_REGISTERS_128 KW_D64(0)
#define KW_DESC_128 "%64, %65"
#define KW_PRED_128 "%66"
#define KW_TRANS_128 "%67, %68"
#define KW_LIST_144 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
    "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, " \
    "%65, %66, %67, %68, %69, %70, %71"
#define KW_REGISTERS_144 KW_D64(0), KW_D4(64), KW_D4(68)
#define KW_DESC_144 "%72, %73"
#define KW_PRED_144 "%74"
#define KW_TRANS_144 "%75, %76"
#define KW_LIST_160 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
    "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, " \
    "%65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define KW_REGISTERS_160 KW_D64(0), KW_D16(64)
#define KW_DESC_160 "%80, %81"
#define KW_PRED_160 "%82"
#define KW_TRANS_160 "%83, %84"
#define KW_LIST_176 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
    "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, " \
    "%65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, " \
    "%86, %87"
#define KW_REGISTERS_176 KW_D64(0), KW_D16(64), KW_D4(80), KW_D4(84)
#define KW_DESC_176 "%88, %89"
#define KW_PRED_176 "%90"
#define KW_TRANS_176 "%91, %92"
#define KW_LIST_192 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
    "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, " \
    "%65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, " \
    "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define KW_REGISTERS_192 KW_D64(0), KW_D16(64), KW_D16(80)
#define KW_DESC_192 "%96, %97"
#define KW_PRED_192 "%98"
#define KW_TRANS_192 "%99, %100"
#define KW_LIST_208 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
    "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, " \
    "%65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, " \
    "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103"
#define KW_REGISTERS_208 KW_D64(0), KW_D16(64), KW_D16(80), KW_D4(96), KW_D4(100)
#define KW_DESC_208 "%104, %105"
#define KW_PRED_208 "%106"
#define KW_TRANS_208 "%107, %108"
#define KW_LIST_224 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
    "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, " \
    "%65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, " \
    "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, " \
    "%106, %107, %108, %109, %110, %111"
#define KW_REGISTERS_224 KW_D64(0), KW_D16(64), KW_D16(80), KW_D16(96)
#define KW_DESC_224 "%112, %113"
#define KW_PRED_224 "%114"
#define KW_TRANS_224 "%115, %116"
#define KW_LIST_240 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
    "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, " \
    "%65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, " \
    "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, " \
    "%106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119"
#define KW_REGISTERS_240 KW_D64(0), KW_D16(64), KW_D16(80), KW_D16(96), KW_D4(112), KW_D4(116)
#define KW_DESC_240 "%120, %121"
#define KW_PRED_240 "%122"
#define KW_TRANS_240 "%123, %124"
#define KW_LIST_256 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
    "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, " \
    "%65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, " \
    "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, " \
    "%106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, " \
    "%123, %124, %125, %126, %127"
#define KW_REGISTERS_256 KW_D64(0), KW_D64(64)
#define KW_DESC_256 "%128, %129"
#define KW_PRED_256 "%130"
#define KW_TRANS_256 "%131, %132"

#define KW_WGMMA_16BIT(T, N)                                                                                          \
    template <bool kTransposeA, bool kTransposeB>                                                                     \
    struct wgmma_mma_async<T, T, N, kTransposeA, kTransposeB> {                                                       \
        static __device__ __forceinline__ void issue(float (&d)[N / 2], unsigned long long desc_a,                    \
                                                     unsigned long long desc_b, bool accumulate) {                    \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " KW_PRED_##N ", 0;\n"                                     \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " {" KW_LIST_##N                 \
                         "}, " KW_DESC_##N ", p, 1, 1, " KW_TRANS_##N ";\n}"                                          \
                         : KW_REGISTERS_##N                                                                           \
                         : "l"(desc_a), "l"(desc_b), "r"(static_cast<int>(accumulate)),                               \
                           "n"(static_cast<int>(kTransposeA)), "n"(static_cast<int>(kTransposeB)));                   \
        }                                                                                                             \
    };

#define KW_WGMMA(A, B, K, N)                                                                                          \
    template <>                                                                                                       \
    struct wgmma_mma_async<A, B, N> {                                                                                 \
        static __device__ __forceinline__ void issue(float (&d)[N / 2], unsigned long long desc_a,                    \
                                                     unsigned long long desc_b, bool accumulate) {                    \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " KW_PRED_##N ", 0;\n"                                     \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k" #K ".f32." #A "." #B " {" KW_LIST_##N             \
                         "}, " KW_DESC_##N ", p, 1, 1;\n}"                                                            \
                         : KW_REGISTERS_##N                                                                           \
                         : "l"(desc_a), "l"(desc_b), "r"(static_cast<int>(accumulate)));                              \
        }                                                                                                             \
    };

#define KW_WGMMA_ALL(N)         \
    KW_WGMMA_16BIT(bf16, N)     \
    KW_WGMMA_16BIT(f16, N)      \
    KW_WGMMA(tf32, tf32, 8, N)  \
    KW_WGMMA(e4m3, e4m3, 32, N) \
    KW_WGMMA(e4m3, e5m2, 32, N) \
    KW_WGMMA(e5m2, e4m3, 32, N) \
    KW_WGMMA(e5m2, e5m2, 32, N)

KW_WGMMA_ALL(8)
KW_WGMMA_ALL(16)
KW_WGMMA_ALL(32)
KW_WGMMA_ALL(48)
KW_WGMMA_ALL(64)
KW_WGMMA_ALL(80)
KW_WGMMA_ALL(96)
KW_WGMMA_ALL(112)
KW_WGMMA_ALL(128)
KW_WGMMA_ALL(144)
KW_WGMMA_ALL(160)
KW_WGMMA_ALL(176)
KW_WGMMA_ALL(192)
KW_WGMMA_ALL(208)
KW_WGMMA_ALL(224)
KW_WGMMA_ALL(240)
KW_WGMMA_ALL(256)

// The same for FP16 with A in registers, those of mma.m16n8k16 for the 16 rows of each warp; B is K-major. The registers
// may be changed when the products are complete.
template <int N>
struct wgmma_mma_async_registers;

#define KW_WGMMA_REGISTERS(N, OPERANDS, PRED)                                                                         \
    template <>                                                                                                       \
    struct wgmma_mma_async_registers<N> {                                                                             \
        static __device__ __forceinline__ void issue(float (&d)[N / 2], const unsigned (&a)[4],                       \
                                                     unsigned long long desc_b, bool accumulate) {                    \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " PRED ", 0;\n"                                           \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" KW_LIST_##N                       \
                         "}, " OPERANDS ", p, 1, 1, 0;\n}"                                                            \
                         : KW_REGISTERS_##N                                                                           \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc_b),                                   \
                           "r"(static_cast<int>(accumulate)));                                                        \
        }                                                                                                             \
    };

KW_WGMMA_REGISTERS(8, "{%4, %5, %6, %7}, %8", "%9")
KW_WGMMA_REGISTERS(16, "{%8, %9, %10, %11}, %12", "%13")
KW_WGMMA_REGISTERS(32, "{%16, %17, %18, %19}, %20", "%21")
KW_WGMMA_REGISTERS(64, "{%32, %33, %34, %35}, %36", "%37")
KW_WGMMA_REGISTERS(128, "{%64, %65, %66, %67}, %68", "%69")

}  // namespace kw
