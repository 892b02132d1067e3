// CUDA C++ for g++, prepended to a kernel's source. The runtime (runtime.cpp) is a separate library, never
// instrumented. The grid is a loop and threads are fibers; `__syncthreads` and warp operations switch between them.
// `__shared__` variables are thread-local to the operating-system thread that runs the block.
#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <type_traits>
#include <utility>

// ---- Qualifiers. In a sanitizer's process (KW_PROCESS) one block runs at a time and shared memory is an ordinary
// static variable, so that AddressSanitizer adds redzones.
#ifdef KW_PROCESS
#define KW_STORAGE
#else
#define KW_STORAGE __thread
#endif
#ifdef __APPLE__
#define KW_DYNAMIC __asm__("_kw_dynamic_shared")
#else
#define KW_DYNAMIC __asm__("kw_dynamic_shared")
#endif
#define KW_INLINE inline __attribute__((always_inline))

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __noinline__  // empty, since system headers use __attribute__((__noinline__))
#define __forceinline__ KW_INLINE
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static KW_STORAGE  // source.py has rewritten `extern __shared__ T name[]`

extern "C" {
KW_STORAGE char kw_dynamic_shared[kKwSharedBytes] __attribute__((aligned(1024)));
__attribute__((visibility("default"))) char* kw_dynamic() { return kw_dynamic_shared; }
}

// ---- Thread and block indices.
#define threadIdx (kw_thread_position.thread)
#define blockIdx (kw_thread_position.block)
#define blockDim (kw_thread_position.block_dim)
#define gridDim (kw_thread_position.grid_dim)
constexpr int warpSize = kKwWarp;

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// ---- Vectors.
#define KW_VECTORS(T, name, align2, align4)                                                                        \
  struct name##1 { T x; };                                                                                         \
  struct alignas(align2) name##2 { T x, y; };                                                                      \
  struct name##3 { T x, y, z; };                                                                                   \
  struct alignas(align4) name##4 { T x, y, z, w; };                                                                \
  constexpr KW_INLINE name##1 make_##name##1(T x) { return {x}; }                                                  \
  constexpr KW_INLINE name##2 make_##name##2(T x, T y) { return {x, y}; }                                          \
  constexpr KW_INLINE name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                  \
  constexpr KW_INLINE name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
KW_VECTORS(signed char, char, 2, 4)
KW_VECTORS(unsigned char, uchar, 2, 4)
KW_VECTORS(short, short, 4, 8)
KW_VECTORS(unsigned short, ushort, 4, 8)
KW_VECTORS(int, int, 8, 16)
KW_VECTORS(unsigned, uint, 8, 16)
KW_VECTORS(float, float, 8, 16)
KW_VECTORS(long long, longlong, 16, 16)
KW_VECTORS(unsigned long long, ulonglong, 16, 16)
KW_VECTORS(double, double, 16, 16)

// ---- Synchronisation: macros, so that reports contain the line.
#define __syncthreads() kw_barrier(__LINE__)
#define __syncthreads_or(predicate) kw_barrier_or(__LINE__, !!(predicate))
#define __syncwarp(...) kw::sync_warp(__LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __threadfence() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define __threadfence_block() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define __shfl_sync(...) kw::shuffle_index(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) kw::shuffle_up(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) kw::shuffle_down(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) kw::shuffle_xor(__LINE__, __VA_ARGS__)
#define __ballot_sync(mask, predicate) kw_ballot(__LINE__, mask, !!(predicate))
#define __any_sync(mask, predicate) static_cast<int>(kw_ballot(__LINE__, mask, !!(predicate)) != 0)
#define __all_sync(mask, predicate) static_cast<int>(kw_ballot(__LINE__, mask, !(predicate)) == 0)

namespace kw {

KW_INLINE void sync_warp(int line, unsigned mask = 0xffffffffu) { kw_syncwarp(line, mask); }

template <class T>
KW_INLINE T shuffle(int line, unsigned mask, T value, int source) {
  static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
  unsigned long long bits = 0;
  memcpy(&bits, &value, sizeof(T));
  bits = kw_shuffle(line, mask, bits, source);
  memcpy(&value, &bits, sizeof(T));
  return value;
}

template <class T>
KW_INLINE T shuffle_index(int line, unsigned mask, T value, int source, int width = warpSize) {
  return shuffle(line, mask, value, (kw_lane() & ~(width - 1)) | (source & (width - 1)));
}

template <class T>
KW_INLINE T shuffle_up(int line, unsigned mask, T value, unsigned delta, int width = warpSize) {
  int lane = kw_lane(), inside = lane & (width - 1);
  return shuffle(line, mask, value, inside < int(delta) ? lane : lane - int(delta));
}

template <class T>
KW_INLINE T shuffle_down(int line, unsigned mask, T value, unsigned delta, int width = warpSize) {
  int lane = kw_lane(), inside = lane & (width - 1);
  return shuffle(line, mask, value, inside + int(delta) >= width ? lane : lane + int(delta));
}

template <class T>
KW_INLINE T shuffle_xor(int line, unsigned mask, T value, int other, int width = warpSize) {
  int lane = kw_lane(), source = lane ^ other;
  return shuffle(line, mask, value, source >= (lane & ~(width - 1)) + width ? lane : source);
}

// ---- Atomic operations: compare-and-swap loops, relaxed as on the GPU.
template <class T>
using Bits = std::conditional_t<sizeof(T) == 8, unsigned long long, unsigned>;
template <class T>
using Same = std::common_type_t<T>;

template <class To, class From>
KW_INLINE To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same number of bytes");
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

template <class T, class F>
KW_INLINE T atomic_update(T* address, F next) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "an atomic operation has 4 or 8 bytes");
  auto* word = reinterpret_cast<Bits<T>*>(address);
  Bits<T> old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &old, bits<Bits<T>>(next(bits<T>(old))), false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return bits<T>(old);
}

template <class... Args, size_t... i>
KW_INLINE void invoke(void (*kernel)(Args...), void** values, std::index_sequence<i...>) {
  kernel(*static_cast<std::remove_reference_t<Args>*>(values[i])...);
}

template <class... Args>
KW_INLINE void invoke(void (*kernel)(Args...), void** values) {
  invoke(kernel, values, std::index_sequence_for<Args...>{});
}

template <class T>
constexpr int kind = std::is_floating_point_v<T>                         ? kKwFloat
                     : std::is_pointer_v<T>                              ? kKwPointer
                     : std::is_integral_v<T> && std::is_signed_v<T>      ? kKwSigned
                     : std::is_integral_v<T> || std::is_enum_v<T>        ? kKwUnsigned
                                                                         : kKwOther;
template <class T>
constexpr int bytes = sizeof(T);
template <>
inline constexpr int bytes<void> = 0;

template <class T>
constexpr KwParameter describe_parameter() {
  using Inner = std::remove_cv_t<std::remove_pointer_t<T>>;
  return {kind<T>, bytes<T>, kind<Inner>, bytes<Inner>};
}

template <class... Args>
int describe_parameters(void (*)(Args...), const KwParameter** rows) {
  static constexpr KwParameter table[] = {describe_parameter<std::remove_cv_t<Args>>()..., {}};
  *rows = table;
  return sizeof...(Args);
}

}  // namespace kw

#define KW_UPDATE(name, next)                                                                                      \
  template <class T>                                                                                               \
  KW_INLINE T name(T* address, kw::Same<T> value) {                                                                \
    return kw::atomic_update(address, [value](T old) -> T { return next; });                                       \
  }
KW_UPDATE(atomicAdd, old + value)
KW_UPDATE(atomicSub, old - value)
KW_UPDATE(atomicExch, value)
KW_UPDATE(atomicMin, value < old ? value : old)
KW_UPDATE(atomicMax, old < value ? value : old)
KW_UPDATE(atomicAnd, old& value)
KW_UPDATE(atomicOr, old | value)
KW_UPDATE(atomicXor, old ^ value)
KW_UPDATE(atomicInc, old >= value ? 0 : old + 1)
KW_UPDATE(atomicDec, old == 0 || old > value ? value : old - 1)
template <class T>
KW_INLINE T atomicCAS(T* address, kw::Same<T> compare, kw::Same<T> value) {
  return kw::atomic_update(address, [=](T old) -> T { return old == compare ? value : old; });
}

// ---- Arithmetic. Macros where glibc declares the same double-underscore name.
#define __trap() (fprintf(stderr, "%s:%d: __trap()\n", __FILE__, __LINE__), abort())
#define __ldg(address) (*(address))
#define __ldcg(address) (*(address))
#define __ldcs(address) (*(address))
#define __stcs(address, value) (void)(*(address) = (value))
#define __stcg(address, value) (void)(*(address) = (value))
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __powf(x, y) powf(x, y)
#define __fmaf_rn(a, b, c) fmaf(a, b, c)
#define __fma_rn(a, b, c) fma(a, b, c)
#define __fsqrt_rn(x) sqrtf(x)
#define __fdividef(x, y) ((x) / (y))

template <class A, class B>
constexpr KW_INLINE std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return a != a ? T(b) : T(b) < T(a) ? T(b) : T(a);
  return T(b) < T(a) ? T(b) : T(a);
}
template <class A, class B>
constexpr KW_INLINE std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return a != a ? T(b) : T(a) < T(b) ? T(b) : T(a);
  return T(a) < T(b) ? T(b) : T(a);
}
KW_INLINE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
KW_INLINE double rsqrt(double x) { return 1.0 / sqrt(x); }
KW_INLINE float fdividef(float x, float y) { return x / y; }
KW_INLINE float __fadd_rn(float x, float y) { return x + y; }
KW_INLINE float __fsub_rn(float x, float y) { return x - y; }
KW_INLINE float __fmul_rn(float x, float y) { return x * y; }
KW_INLINE float __fdiv_rn(float x, float y) { return x / y; }
KW_INLINE float __frcp_rn(float x) { return 1.0f / x; }
KW_INLINE float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
KW_INLINE float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
KW_INLINE int __float2int_rn(float x) { return int(nearbyintf(x)); }
KW_INLINE int __float2int_rz(float x) { return int(x); }
KW_INLINE float __int2float_rn(int x) { return float(x); }
KW_INLINE int __float_as_int(float x) { return kw::bits<int>(x); }
KW_INLINE unsigned __float_as_uint(float x) { return kw::bits<unsigned>(x); }
KW_INLINE float __int_as_float(int x) { return kw::bits<float>(x); }
KW_INLINE float __uint_as_float(unsigned x) { return kw::bits<float>(x); }
KW_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
KW_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
KW_INLINE int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
KW_INLINE int __ffs(int x) { return __builtin_ffs(x); }
KW_INLINE unsigned __umulhi(unsigned x, unsigned y) { return unsigned((uint64_t(x) * y) >> 32); }
KW_INLINE int __mulhi(int x, int y) { return int((int64_t(x) * y) >> 32); }

// ---- Exports for build.py, one pair per kernel: its invocation and its parameters.
#define KW_EXPORT(number, ...)                                                                                     \
  extern "C" __attribute__((visibility("default"))) void kw_call_##number(void** values) {                         \
    kw::invoke(__VA_ARGS__, values);                                                                               \
  }                                                                                                                \
  extern "C" __attribute__((visibility("default"))) int kw_parameters_##number(const KwParameter** rows) {         \
    return kw::describe_parameters(__VA_ARGS__, rows);                                                             \
  }
