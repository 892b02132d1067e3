// Vectors of W lanes over the compiler's own vector types, so that one source serves every width: every function here
// takes a vector or a single float. Polynomials are our own least-maximum fits, by Remez's exchange; errors are against
// exact values, in units of the last place of a float. Truth values are vectors of int32, all bits set or none.
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#if defined(__AVX512F__)
constexpr int W = 16;
#elif defined(__AVX2__) || defined(__ARM_FEATURE_SVE)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif

template <typename T, int N> struct Wide { typedef T type __attribute__((vector_size(N * sizeof(T)))); };
template <typename T, int N = W> using Vec = typename Wide<T, N>::type;
using F = Vec<float>;
using D = Vec<double>;
using I = Vec<int32_t>;
using L = Vec<int64_t>;

// Scalars and vectors alike: `Like<V, T>` is V with elements of type T; `as<V>(x)` converts values.
template <typename V> struct Element { using type = V; };
template <typename V> requires requires(V v) { v[0]; } struct Element<V> {
    using type = std::remove_cvref_t<decltype(std::declval<V>()[0])>;
};
template <typename V> constexpr bool is_wide = !std::is_same_v<typename Element<V>::type, V>;
template <typename V> constexpr int lanes = sizeof(V) / sizeof(typename Element<V>::type);
template <typename V, typename T> using Like = std::conditional_t<is_wide<V>, Vec<T, lanes<V>>, T>;

template <typename T> struct Twice;
template <> struct Twice<int8_t> { using type = int16_t; };
template <> struct Twice<uint8_t> { using type = uint16_t; };
template <> struct Twice<int16_t> { using type = int32_t; };
template <> struct Twice<uint16_t> { using type = uint32_t; };
// Whether the bits of an integer have to be doubled more than once, which GCC 12 does lane by lane if not told how.
template <typename Small, typename Large> constexpr bool in_steps =
    is_wide<Small> && is_wide<Large> && sizeof(Large) >= 4 * sizeof(Small) &&
    std::is_integral_v<typename Element<Small>::type> && std::is_integral_v<typename Element<Large>::type>;

template <typename To, typename From> static inline To as(From x) {
    if constexpr (std::is_same_v<To, From>) return x;
    else if constexpr (in_steps<From, To>)
        return as<To>(__builtin_convertvector(x, Like<From, typename Twice<typename Element<From>::type>::type>));
    else if constexpr (in_steps<To, From>)
        return __builtin_convertvector(as<Like<To, typename Twice<typename Element<To>::type>::type>>(x), To);
    else if constexpr (is_wide<To> && is_wide<From>) return __builtin_convertvector(x, To);
    else if constexpr (is_wide<To>) return To{} + static_cast<typename Element<To>::type>(x);
    else return static_cast<To>(x);
}
template <typename To, typename From> static inline To bits(From x) {
    static_assert(sizeof(To) == sizeof(From));
    To result;
    __builtin_memcpy(&result, &x, sizeof(To));
    return result;
}
// Truth of a comparison as int32 lanes, whatever was compared.
template <typename M> static inline auto truth(M mask) {
    if constexpr (std::is_integral_v<M>) return static_cast<int32_t>(mask ? -1 : 0);
    else return as<Like<M, int32_t>>(mask);
}
template <typename V, typename M> static inline V choose(M mask, V yes, V no) {
    if constexpr (!is_wide<V>) return mask ? yes : no;
    else if constexpr (sizeof(V) == sizeof(M)) return mask ? yes : no;
    else return as<Like<M, int64_t>>(mask) ? yes : no;
}

template <typename V> static inline V each(V x, typename Element<V>::type (*f)(typename Element<V>::type)) {
    if constexpr (is_wide<V>) {
        for (int lane = 0; lane < lanes<V>; ++lane) x[lane] = f(x[lane]);
        return x;
    } else return f(x);
}
template <typename V>
static inline V each(V x, V y, typename Element<V>::type (*f)(typename Element<V>::type, typename Element<V>::type)) {
    if constexpr (is_wide<V>) {
        for (int lane = 0; lane < lanes<V>; ++lane) x[lane] = f(x[lane], y[lane]);
        return x;
    } else return f(x, y);
}
// The same for what is rare, out of the way of the rest.
template <typename V>
[[gnu::noinline, gnu::cold]] static V each_rare(V x, typename Element<V>::type (*f)(typename Element<V>::type)) {
    return each<V>(x, f);
}
template <typename V>
[[gnu::noinline, gnu::cold]] static V each_rare(
    V x, V y, typename Element<V>::type (*f)(typename Element<V>::type, typename Element<V>::type)) {
    return each<V>(x, y, f);
}

// a * b + c, rounded once. Without an instruction for it, it is computed lane by lane.
#if defined(__FMA__) || defined(__aarch64__)
constexpr bool has_fma = true;
#else
constexpr bool has_fma = false;
#endif
template <typename V> static inline V fused(V a, V b, V c) {
    if constexpr (!is_wide<V>) return __builtin_fmaf(a, b, c);
#if defined(__FMA__)
    else if constexpr (sizeof(V) >= 16) {
        asm("vfmadd213ps %2, %1, %0" : "+v"(a) : "v"(b), "v"(c));
        return a;
    }
#endif
    else {
        for (int lane = 0; lane < lanes<V>; ++lane) a[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
        return a;
    }
}
template <int first, typename V, int... lane> static inline auto picked(V x, std::integer_sequence<int, lane...>) {
    return __builtin_shufflevector(x, x, (first + lane)...);
}
// The first half of a vector, or with `at` 1 the second.
template <int at, typename V> static inline auto half(V x) {
    return picked<at * lanes<V> / 2>(x, std::make_integer_sequence<int, lanes<V> / 2>());
}
template <typename V, int... lane> static inline auto joined(V one, V other, std::integer_sequence<int, lane...>) {
    return __builtin_shufflevector(one, other, lane...);
}
template <typename V> static inline auto joined(V one, V other) {
    return joined(one, other, std::make_integer_sequence<int, 2 * lanes<V>>());
}
// Whether a comparison is true of any lane.
template <typename M> static inline bool any_lane(M mask) {
    if constexpr (!is_wide<M>) return mask;
#if defined(__AVX__)
    else if constexpr (sizeof(M) == 64 || sizeof(M) == 32) {
        bool any;
        if constexpr (sizeof(M) == 32) asm("vptest %1, %1" : "=@ccnz"(any) : "x"(mask));
        else asm("vptestmd %1, %1, %%k1\n\tkortestw %%k1, %%k1" : "=@ccnz"(any) : "v"(mask) : "k1");
        return any;
    }
#endif
    else if constexpr (sizeof(M) > 8) return any_lane(half<0>(mask) | half<1>(mask));
    else return bits<int64_t>(mask);
}
// x with the sign of `sign`.
template <typename V> static inline V with_sign(V x, V sign) {
    using B = Like<V, std::conditional_t<sizeof(typename Element<V>::type) == 4, int32_t, int64_t>>;
    const B top = as<B>(std::numeric_limits<typename Element<B>::type>::min());
    return bits<V>((bits<B>(x) & ~top) | (bits<B>(sign) & top));
}
