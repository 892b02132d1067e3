// Vectors of W lanes over the compiler's own vector types, so that one source serves every width: every function here
// takes a vector or a single float. Polynomials are least-maximum fits; errors are against exact values, in units of
// the last place of a float. Truth values are vectors of int32, all bits set or none.
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

template <typename To, typename From> static inline To as(From x) {
    if constexpr (std::is_same_v<To, From>) return x;
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
