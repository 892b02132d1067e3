// Vectors of kLanes lanes on the compiler's vector extension, so that one source serves every width. All functions here
// take a vector or a scalar. Polynomials are minimax fits by the Remez algorithm; errors are in float ulp against exact
// values. Masks are vectors of int32 with all bits set or none.
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__) || defined(__ARM_FEATURE_SVE)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

template <typename T, int N> struct VecOf { typedef T type __attribute__((vector_size(N * sizeof(T)))); };
template <typename T, int N = kLanes> using Vec = typename VecOf<T, N>::type;
using VecF32 = Vec<float>;
using VecI32 = Vec<int32_t>;

// For scalars and vectors: `Rebind<V, T>` is V with elements of type T; `convert<V>(x)` converts values.
template <typename V> struct Element { using type = V; };
template <typename V> requires requires(V v) { v[0]; } struct Element<V> {
    using type = std::remove_cvref_t<decltype(std::declval<V>()[0])>;
};
template <typename V> constexpr bool is_vector = !std::is_same_v<typename Element<V>::type, V>;
template <typename V> constexpr int num_lanes = sizeof(V) / sizeof(typename Element<V>::type);
template <typename V, typename T> using Rebind = std::conditional_t<is_vector<V>, Vec<T, num_lanes<V>>, T>;

template <typename T> struct NextWider;
template <> struct NextWider<int8_t> { using type = int16_t; };
template <> struct NextWider<uint8_t> { using type = uint16_t; };
template <> struct NextWider<int16_t> { using type = int32_t; };
template <> struct NextWider<uint16_t> { using type = uint32_t; };
// Integer conversions by a factor of 4 or more in width: GCC 12 vectorises them only in steps of 2.
template <typename From, typename To> constexpr bool needs_stepwise_convert =
    is_vector<From> && is_vector<To> && sizeof(To) >= 4 * sizeof(From) &&
    std::is_integral_v<typename Element<From>::type> && std::is_integral_v<typename Element<To>::type>;

template <typename To, typename From> static inline To convert(From x) {
    if constexpr (std::is_same_v<To, From>) return x;
    else if constexpr (needs_stepwise_convert<From, To>)
        return convert<To>(
            __builtin_convertvector(x, Rebind<From, typename NextWider<typename Element<From>::type>::type>));
    else if constexpr (needs_stepwise_convert<To, From>)
        return __builtin_convertvector(
            convert<Rebind<To, typename NextWider<typename Element<To>::type>::type>>(x), To);
    else if constexpr (is_vector<To> && is_vector<From>) return __builtin_convertvector(x, To);
    else if constexpr (is_vector<To>) return To{} + static_cast<typename Element<To>::type>(x);
    else return static_cast<To>(x);
}
template <typename To, typename From> static inline To bit_cast(From x) {
    static_assert(sizeof(To) == sizeof(From));
    To result;
    __builtin_memcpy(&result, &x, sizeof(To));
    return result;
}
// The result of a comparison of any type as an int32 mask.
template <typename M> static inline auto to_mask(M mask) {
    if constexpr (std::is_integral_v<M>) return static_cast<int32_t>(mask ? -1 : 0);
    else return convert<Rebind<M, int32_t>>(mask);
}
template <typename V, typename M> static inline V select(M mask, V a, V b) {
    if constexpr (!is_vector<V>) return mask ? a : b;
    else if constexpr (sizeof(V) == sizeof(M)) return mask ? a : b;
    else return convert<Rebind<M, int64_t>>(mask) ? a : b;
}

template <typename V> static inline V map_lanes(V x, typename Element<V>::type (*f)(typename Element<V>::type)) {
    if constexpr (is_vector<V>) {
        for (int lane = 0; lane < num_lanes<V>; ++lane) x[lane] = f(x[lane]);
        return x;
    } else return f(x);
}
template <typename V>
static inline V map_lanes(
    V x, V y, typename Element<V>::type (*f)(typename Element<V>::type, typename Element<V>::type)) {
    if constexpr (is_vector<V>) {
        for (int lane = 0; lane < num_lanes<V>; ++lane) x[lane] = f(x[lane], y[lane]);
        return x;
    } else return f(x, y);
}
// The same for rare cases, kept out of the hot code.
template <typename V>
[[gnu::noinline, gnu::cold]] static V map_lanes_cold(V x, typename Element<V>::type (*f)(typename Element<V>::type)) {
    return map_lanes<V>(x, f);
}
template <typename V>
[[gnu::noinline, gnu::cold]] static V map_lanes_cold(
    V x, V y, typename Element<V>::type (*f)(typename Element<V>::type, typename Element<V>::type)) {
    return map_lanes<V>(x, y, f);
}

// a * b + c, rounded once; lane by lane where the target has no FMA instruction.
#if defined(__FMA__) || defined(__aarch64__)
constexpr bool has_fma = true;
#else
constexpr bool has_fma = false;
#endif
template <typename V> static inline V fma(V a, V b, V c) {
    if constexpr (!is_vector<V>) return __builtin_fmaf(a, b, c);
#if defined(__FMA__)
    else if constexpr (sizeof(V) >= 16) {
        asm("vfmadd213ps %2, %1, %0" : "+v"(a) : "v"(b), "v"(c));
        return a;
    }
#endif
    else {
        for (int lane = 0; lane < num_lanes<V>; ++lane) a[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
        return a;
    }
}
template <int first, typename V, int... lane>
static inline auto extract_lanes(V x, std::integer_sequence<int, lane...>) {
    return __builtin_shufflevector(x, x, (first + lane)...);
}
// The lower half of a vector (`at` = 0) or the upper one (1).
template <int at, typename V> static inline auto half(V x) {
    return extract_lanes<at * num_lanes<V> / 2>(x, std::make_integer_sequence<int, num_lanes<V> / 2>());
}
template <typename V, int... lane> static inline auto concat(V a, V b, std::integer_sequence<int, lane...>) {
    return __builtin_shufflevector(a, b, lane...);
}
template <typename V> static inline auto concat(V a, V b) {
    return concat(a, b, std::make_integer_sequence<int, 2 * num_lanes<V>>());
}
// Whether any lane of a mask is set.
template <typename M> static inline bool any_lane(M mask) {
    if constexpr (!is_vector<M>) return mask;
#if defined(__AVX__)
    else if constexpr (sizeof(M) == 64 || sizeof(M) == 32) {
        bool any;
        if constexpr (sizeof(M) == 32) asm("vptest %1, %1" : "=@ccnz"(any) : "x"(mask));
        else asm("vptestmd %1, %1, %%k1\n\tkortestw %%k1, %%k1" : "=@ccnz"(any) : "v"(mask) : "k1");
        return any;
    }
#endif
    else if constexpr (sizeof(M) > 8) return any_lane(half<0>(mask) | half<1>(mask));
    else return bit_cast<int64_t>(mask);
}
// x with the sign of `sign`.
template <typename V> static inline V copy_sign(V x, V sign) {
    using B = Rebind<V, std::conditional_t<sizeof(typename Element<V>::type) == 4, int32_t, int64_t>>;
    const B sign_bit = convert<B>(std::numeric_limits<typename Element<B>::type>::min());
    return bit_cast<V>((bit_cast<B>(x) & ~sign_bit) | (bit_cast<B>(sign) & sign_bit));
}
