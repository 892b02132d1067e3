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

// The C library's functions of floats and of doubles. <cmath> takes a compiler longer to read than a kernel does.
#define OF_ONE(name) \
    static inline float name(float x) { return __builtin_##name##f(x); } \
    static inline double name(double x) { return __builtin_##name(x); }
#define OF_TWO(name) \
    static inline float name(float x, float y) { return __builtin_##name##f(x, y); } \
    static inline double name(double x, double y) { return __builtin_##name(x, y); }
// A whole number is its own floor; its powers wrap around as products do, and one of a negative exponent is a fraction.
#define OF_WHOLE(name) template <typename T> requires std::is_integral_v<T> static inline T name(T x) { return x; }
template <typename T> static inline T whole_power(T x, T y) {
    using U = std::make_unsigned_t<T>;
    if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
    U power = 1, square = U(x);
    for (U rest = U(y); rest; rest /= 2, square *= square) if (rest % 2) power *= square;
    return T(power);
}
namespace scalar { OF_ONE(sqrt) }
namespace scalar { OF_ONE(exp) }
namespace scalar { OF_ONE(exp2) }
namespace scalar { OF_ONE(expm1) }
namespace scalar { OF_ONE(log) }
namespace scalar { OF_ONE(log2) }
namespace scalar { OF_ONE(log10) }
namespace scalar { OF_ONE(log1p) }
namespace scalar { OF_ONE(sin) }
namespace scalar { OF_ONE(cos) }
namespace scalar { OF_ONE(tan) }
namespace scalar { OF_ONE(asin) }
namespace scalar { OF_ONE(acos) }
namespace scalar { OF_ONE(atan) }
namespace scalar { OF_ONE(sinh) }
namespace scalar { OF_ONE(cosh) }
namespace scalar { OF_ONE(tanh) }
namespace scalar { OF_ONE(erf) }
namespace scalar { OF_ONE(erfc) }
namespace scalar { OF_ONE(floor) OF_WHOLE(floor) }
namespace scalar { OF_ONE(ceil) OF_WHOLE(ceil) }
namespace scalar { OF_ONE(trunc) OF_WHOLE(trunc) }
namespace scalar { OF_ONE(nearbyint) OF_WHOLE(nearbyint) }
namespace scalar { OF_TWO(fmod) }
namespace scalar { OF_TWO(copysign) }
namespace scalar {
    OF_TWO(pow)
    template <typename T> requires std::is_integral_v<T> static inline T pow(T x, T y) { return whole_power(x, y); }
}

// NaN on either side gives NaN, as torch has it.
template <typename V> static inline V max_of(V a, V b) { return choose(truth((a > b) | (a != a)), a, b); }
template <typename V> static inline V min_of(V a, V b) { return choose(truth((a < b) | (a != a)), a, b); }
template <typename V> static inline V abs_of(V x) {
    if constexpr (std::is_floating_point_v<typename Element<V>::type>) {
        using T = std::conditional_t<sizeof(typename Element<V>::type) == 4, int32_t, int64_t>;
        using B = Like<V, T>;
        return bits<V>(bits<B>(x) & as<B>(std::numeric_limits<T>::max()));
    } else return choose(truth(x < as<V>(0)), as<V>(0) - x, x);
}
template <typename V> static inline V sign_of(V x) {
    const V below = choose(truth(x < as<V>(0)), as<V>(-1), as<V>(0));
    return choose(truth(x > as<V>(0)), as<V>(1), below);
}
// Division rounded down, and what it leaves, which has the sign of the divisor.
template <typename V> static inline V remainder_of(V x, V y) {
    return each<V>(x, y, [](auto a, auto b) {
        const auto left = scalar::fmod(a, b);
        return left != 0 && (left < 0) != (b < 0) ? left + b : left;
    });
}
template <typename V> static inline V floor_divided(V x, V y) {
    return each<V>(x, y, [](auto a, auto b) {
        const auto left = scalar::fmod(a, b), whole = (a - left) / b;
        if (b == 0) return a / b;
        const auto down = left != 0 && (left < 0) != (b < 0) ? whole - 1 : whole;
        if (down == 0) return scalar::copysign(decltype(a)(0), a / b);
        const auto near = scalar::floor(down);
        return down - near > decltype(a)(0.5) ? near + 1 : near;
    });
}
// sqrt has to set errno, which keeps a compiler from taking several at once.
template <typename V> static inline V sqrt_of(V x) {
#if defined(__AVX__)
    if constexpr (is_wide<V> && std::is_same_v<typename Element<V>::type, float> && sizeof(V) >= 16) {
        V root;
        asm("vsqrtps %1, %0" : "=v"(root) : "v"(x));
        return root;
    } else
#endif
        return each<V>(x, [](auto v) { return scalar::sqrt(v); });
}

// e^x: 2^k * e^r, |r| <= ln(2)/2; 2^k in two factors, so that results below the normal range are right too. 1.0 ulp.
template <typename V> static inline V exp_of(V x) {
    if constexpr (std::is_same_v<typename Element<V>::type, double>) return each<V>(x, [](auto v) { return scalar::exp(v); });
    else {
        const V low = choose(truth(x < as<V>(-104.0f)), as<V>(-104.0f), x);
        const V c = choose(truth(low > as<V>(89.0f)), as<V>(89.0f), low);
        const V shifted = c * as<V>(1.44269504f) + as<V>(12582912.0f);
        const V k = shifted - as<V>(12582912.0f);
        const V r = (c - k * as<V>(0.693145752f)) - k * as<V>(1.42860677e-6f);
        V p = as<V>(1.9907574031e-4f);
        p = p * r + as<V>(1.3933652215e-3f);
        p = p * r + as<V>(8.3332860228e-3f);
        p = p * r + as<V>(4.1666464899e-2f);
        p = p * r + as<V>(1.6666666756e-1f);
        p = p * r + as<V>(5.0000000135e-1f);
        p = p * r * r + r + as<V>(1.0f);
#if defined(__AVX512F__)
        if constexpr (is_wide<V>) {
            asm("vscalefps %1, %0, %0" : "+v"(p) : "v"(k));
            return p;
        }
#endif
        using N = Like<V, int32_t>;
        const N whole = bits<N>(shifted) - as<N>(0x4B400000), half = whole >> 1;
        return p * bits<V>((half + as<N>(127)) << 23) * bits<V>((whole - half + as<N>(127)) << 23);
    }
}

template <typename V> constexpr bool is_double = std::is_same_v<typename Element<V>::type, double>;
#define FOR_DOUBLES(V, x, f) if constexpr (is_double<V>) return each<V>(x, [](auto v) { return f(v); }); else

// x = 2^k * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), and `rest` = log(1 + f) - f by a polynomial.
template <typename V> struct Logarithm {
    V k, f, rest;
    explicit Logarithm(V x) {
        using N = Like<V, int32_t>;
        const auto small = truth(x < as<V>(1.17549435e-38f));
        const V scaled = choose(small, x * as<V>(8388608.0f), x);
        const N offset = choose(small, as<N>(23), as<N>(0));
        const N high = bits<N>(scaled) - as<N>(0x3F3504F3);
        k = as<V>((high >> 23) - offset);
        f = bits<V>((high & as<N>(0x007FFFFF)) + as<N>(0x3F3504F3)) - as<V>(1.0f);
        V p = as<V>(7.3322428559e-2f);
        p = p * f + as<V>(-1.1659798204e-1f);
        p = p * f + as<V>(1.1634708070e-1f);
        p = p * f + as<V>(-1.2396721809e-1f);
        p = p * f + as<V>(1.4251153240e-1f);
        p = p * f + as<V>(-1.6669150000e-1f);
        p = p * f + as<V>(2.0000688134e-1f);
        p = p * f + as<V>(-2.4999981198e-1f);
        p = p * f + as<V>(3.3333331257e-1f);
        rest = p * f * f * f - as<V>(0.5f) * f * f;
    }
};
// What a logarithm is where x is 0, negative, infinite or NaN; else r.
template <typename V> static inline V log_of_any(V x, V r) {
    const float infinite = std::numeric_limits<float>::infinity();
    r = choose(truth(x == as<V>(infinite)), as<V>(infinite), r);
    r = choose(truth(x == as<V>(0.0f)), as<V>(-infinite), r);
    return choose(truth(x < as<V>(0.0f)) | truth(x != x), as<V>(std::numeric_limits<float>::quiet_NaN()), r);
}
// 0.9 ulp, as are those to other bases.
template <typename V> static inline V log_of(V x) {
    FOR_DOUBLES(V, x, scalar::log) {
        const Logarithm<V> at(x);
        return log_of_any(x, (at.rest + at.k * as<V>(-2.12194440e-4f)) + at.f + at.k * as<V>(0.693359375f));
    }
}
// To another base: log(2) and log(e) there in two parts, of which the first times k and times the first bits of f are
// exact: what is a whole number comes out as one.
template <typename V> static inline V log_to_base(V x, float two, float two_rest, float e, float e_rest) {
    const Logarithm<V> at(x);
    const V first = bits<V>(bits<Like<V, int32_t>>(at.f) & as<Like<V, int32_t>>(-4096));
    const V whole = at.k * as<V>(two), part = first * as<V>(e), sum = whole + part;
    const V lost = part - (sum - whole);
    const V small = at.k * as<V>(two_rest) + (at.f * as<V>(e_rest) + at.rest * as<V>(e + e_rest));
    return log_of_any(x, sum + (lost + ((at.f - first) * as<V>(e) + small)));
}
template <typename V> static inline V log2_of(V x) {
    FOR_DOUBLES(V, x, scalar::log2) return log_to_base(x, 1.0f, 0.0f, 1.4423828125f, 3.122284e-4f);
}
template <typename V> static inline V log10_of(V x) {
    FOR_DOUBLES(V, x, scalar::log10) return log_to_base(x, 0.301025390625f, 4.605039e-6f, 0.4342041015625f, 9.038034e-5f);
}
// e^x - 1, without the loss of digits near 0: 2^k * (e^r - 1) + (2^k - 1).
template <typename V> static inline V expm1_of(V x) {
    FOR_DOUBLES(V, x, scalar::expm1) {
        V p = as<V>(1.9907574031e-4f);
        p = p * x + as<V>(1.3933652215e-3f);
        p = p * x + as<V>(8.3332860228e-3f);
        p = p * x + as<V>(4.1666464899e-2f);
        p = p * x + as<V>(1.6666666756e-1f);
        p = p * x + as<V>(5.0000000135e-1f);
        return choose(truth(abs_of(x) < as<V>(0.34657359f)), p * x * x + x, exp_of(x) - as<V>(1.0f));
    }
}
// log(1 + x): what 1 + x lost to rounding is put back.
template <typename V> static inline V log1p_of(V x) {
    FOR_DOUBLES(V, x, scalar::log1p) {
        const V u = as<V>(1.0f) + x;
        const V lost = x - (u - as<V>(1.0f));
        const V corrected = log_of(u) + lost / u;
        const auto plain = truth(u == as<V>(1.0f));
        const auto infinite = truth(x == as<V>(std::numeric_limits<float>::infinity())) | truth(u == as<V>(0.0f));
        return choose(infinite, log_of(u), choose(plain, x, corrected));
    }
}
// tanh(x): a polynomial below 0.625, 1 - 2 / (e^2x + 1) above.
template <typename V> static inline V tanh_of(V x) {
    FOR_DOUBLES(V, x, scalar::tanh) {
        const V s = x * x;
        V p = as<V>(2.2759075555e-3f);
        p = p * s + as<V>(-8.3296049742e-3f);
        p = p * s + as<V>(2.1764754643e-2f);
        p = p * s + as<V>(-5.3958784357e-2f);
        p = p * s + as<V>(1.3333301767e-1f);
        p = p * s + as<V>(-3.3333333162e-1f);
        const V large = as<V>(1.0f) - as<V>(2.0f) / (exp_of(x + x) + as<V>(1.0f));
        return choose(truth(abs_of(x) < as<V>(0.625f)), p * s * x + x, large);
    }
}
template <typename V> static inline V sigmoid_of(V x) { return as<V>(1.0f) / (as<V>(1.0f) + exp_of(as<V>(0.0f) - x)); }
// erf(x): x + x * P(x^2) below 1, 1 - e^-Q(|x|) above.
template <typename V> static inline V erf_of(V x) {
    FOR_DOUBLES(V, x, scalar::erf) {
        const V s = x * x;
        V p = as<V>(-9.6801296720e-6f);
        p = p * s + as<V>(1.1270542148e-4f);
        p = p * s + as<V>(-8.4847111288e-4f);
        p = p * s + as<V>(5.2210748564e-3f);
        p = p * s + as<V>(-2.6865445814e-2f);
        p = p * s + as<V>(1.1283782747e-1f);
        p = p * s + as<V>(-3.7612638484e-1f);
        p = p * s + as<V>(1.2837916706e-1f);
        const V t = min_of(abs_of(x), as<V>(4.1f));
        V q = as<V>(-4.6333646378e-8f);
        q = q * t + as<V>(2.2362432655e-5f);
        q = q * t + as<V>(-4.4556089264e-4f);
        q = q * t + as<V>(4.2193614300e-3f);
        q = q * t + as<V>(-2.5240033561e-2f);
        q = q * t + as<V>(1.0846141118e-1f);
        q = q * t + as<V>(6.3318448276e-1f);
        q = q * t + as<V>(1.1295948452f);
        q = q * t + as<V>(-1.9131222239e-4f);
        const V large = as<V>(1.0f) - exp_of(as<V>(0.0f) - q);
        const V signed_large = choose(truth(x < as<V>(0.0f)), as<V>(0.0f) - large, large);
        return choose(truth(abs_of(x) < as<V>(1.0f)) | truth(x != x), p * x + x, signed_large);
    }
}

// ---- memory: elements as they are stored, values as they are computed

struct BFloat16 { uint16_t bits; };
struct Bool { uint8_t byte; };
template <typename T> struct Computed { using type = T; };
template <> struct Computed<BFloat16> { using type = float; };
template <> struct Computed<_Float16> { using type = float; };
template <> struct Computed<Bool> { using type = int32_t; };
template <> struct Computed<int16_t> { using type = int32_t; };
template <> struct Computed<int8_t> { using type = int32_t; };
template <> struct Computed<uint8_t> { using type = int32_t; };

// The elements from p on, one a lane; or one.
template <typename V, typename T> static inline auto load(const T* p) {
    using R = Like<V, typename Computed<T>::type>;
    if constexpr (is_wide<V>) {
        if constexpr (std::is_same_v<T, BFloat16>) {
            Like<V, uint16_t> raw;
            __builtin_memcpy(&raw, p, sizeof(raw));
            return bits<R>(__builtin_convertvector(raw, Like<V, uint32_t>) << 16);
        } else if constexpr (std::is_same_v<T, Bool>) {
            Like<V, uint8_t> raw;
            __builtin_memcpy(&raw, p, sizeof(raw));
            return as<R>(__builtin_convertvector(raw, R) != 0);
        } else {
            Like<V, T> raw;
            __builtin_memcpy(&raw, p, sizeof(raw));
            return as<R>(raw);
        }
    } else if constexpr (std::is_same_v<T, BFloat16>) return bits<float>(static_cast<uint32_t>(p->bits) << 16);
    else if constexpr (std::is_same_v<T, Bool>) return truth(p->byte != 0);
    else return static_cast<R>(*p);
}
// Elements `stride` apart.
template <typename V, typename T> static inline auto gather(const T* p, int64_t stride) {
    using R = Like<V, typename Computed<T>::type>;
    if constexpr (!is_wide<V>) return load<V>(p);
    else {
        R found;
        for (int lane = 0; lane < lanes<V>; ++lane) found[lane] = load<float>(p + lane * stride);
        return found;
    }
}
static inline uint16_t rounded(float x) {
    const uint32_t raw = bits<uint32_t>(x);
    return x != x ? 0x7FC0 : (raw + 0x7FFF + ((raw >> 16) & 1)) >> 16;
}
template <typename V, typename T> static inline void store(T* p, V x) {
    if constexpr (is_wide<V>) {
        if constexpr (std::is_same_v<T, BFloat16>) {
            const Like<V, uint32_t> raw = bits<Like<V, uint32_t>>(x);
            const Like<V, uint32_t> up = (raw + 0x7FFF + ((raw >> 16) & 1)) >> 16;
            const auto result = __builtin_convertvector((x != x) ? (up * 0 + 0x7FC0) : up, Like<V, uint16_t>);
            __builtin_memcpy(p, &result, sizeof(result));
        } else if constexpr (std::is_same_v<T, Bool>) {
            const auto result = __builtin_convertvector(x & 1, Like<V, uint8_t>);
            __builtin_memcpy(p, &result, sizeof(result));
        } else {
            const auto result = as<Like<V, T>>(x);
            __builtin_memcpy(p, &result, sizeof(result));
        }
    } else if constexpr (std::is_same_v<T, BFloat16>) p->bits = rounded(x);
    else if constexpr (std::is_same_v<T, Bool>) p->byte = x & 1;
    else *p = static_cast<T>(x);
}
// Past the caches, for results that are larger than they are: no line is read only to be written over. What comes
// after the loop waits for it, since the end of a parallel loop is a locked operation.
template <typename V> static inline void stream(float* p, V x) {
#if defined(__AVX__)
    if constexpr (std::is_same_v<V, F>) {
        if (reinterpret_cast<uintptr_t>(p) % sizeof(F) == 0) {
            asm volatile("vmovntps %1, %0" : "=m"(*reinterpret_cast<F*>(p)) : "v"(x));
            return;
        }
    }
#endif
    store(p, x);
}
template <typename V, typename T> static inline void scatter(T* p, V x, int64_t stride) {
    if constexpr (!is_wide<V>) store(p, x);
    else for (int lane = 0; lane < lanes<V>; ++lane) store(p + lane * stride, x[lane]);
}
// Whole numbers from `first` on, one a lane.
template <typename V> static inline V counted(int64_t first) {
    V x = as<V>(first);
    if constexpr (is_wide<V>) for (int lane = 0; lane < lanes<V>; ++lane) x[lane] += lane;
    return x;
}

// ---- reductions: several vectors at once, so that none waits for its own last addition

constexpr int UNROLL = 4;
struct Sum {
    template <typename T> static constexpr T start = T(0);
    template <typename V> static V apply(V a, V b) { return a + b; }
};
struct Product {
    template <typename T> static constexpr T start = T(1);
    template <typename V> static V apply(V a, V b) { return a * b; }
};
struct Max {
    template <typename T> static constexpr T start =
        std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
    template <typename V> static V apply(V a, V b) { return max_of(a, b); }
    template <typename V> static auto beats(V x, V best) { return ~truth(x <= best) & truth(best == best); }
};
struct Min {
    template <typename T> static constexpr T start =
        std::is_floating_point_v<T> ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
    template <typename V> static V apply(V a, V b) { return min_of(a, b); }
    template <typename V> static auto beats(V x, V best) { return ~truth(x >= best) & truth(best == best); }
};
struct Any {
    template <typename T> static constexpr T start = T(0);
    template <typename V> static V apply(V a, V b) { return a | b; }
};
struct All {
    template <typename T> static constexpr T start = T(-1);
    template <typename V> static V apply(V a, V b) { return a & b; }
};
// What `settle` takes in is kept wider, so that a long sum does not lose its small terms.
template <typename Op, typename T> struct Fold {
    using Kept = std::conditional_t<std::is_same_v<T, float>, double, T>;
    Vec<T> wide[UNROLL];
    T single;
    Vec<Kept> settled = as<Vec<Kept>>(Op::template start<Kept>);
    Fold() { clear(); }
    void clear() {
        for (auto& part : wide) part = as<Vec<T>>(Op::template start<T>);
        single = Op::template start<T>;
    }
    template <typename V> void take(Like<V, T> x, int u) {
        if constexpr (is_wide<V>) wide[u] = Op::apply(wide[u], x);
        else single = Op::apply(single, x);
    }
    void settle() {
        for (const auto& part : wide) settled = Op::apply(settled, as<Vec<Kept>>(part));
        settled[0] = Op::apply(Kept(settled[0]), static_cast<Kept>(single));
        clear();
    }
    void merge(Fold& other) {
        other.settle();
        settled = Op::apply(settled, other.settled);
    }
    T value() {
        settle();
        Kept whole = settled[0];
        for (int lane = 1; lane < W; ++lane) whole = Op::apply(whole, Kept(settled[lane]));
        return static_cast<T>(whole);
    }
};
// The same where every lane is a row of its own.
template <typename Op, typename V> struct Running {
    using T = typename Element<V>::type;
    V recent = as<V>(Op::template start<T>), settled = as<V>(Op::template start<T>);
    int count = 0;
    void take(V x) {
        recent = Op::apply(recent, x);
        if (++count == 256) {
            settled = Op::apply(settled, recent);
            recent = as<V>(Op::template start<T>);
            count = 0;
        }
    }
    V value() const { return Op::apply(settled, recent); }
};
// The first place of the largest or smallest value of each lane; a NaN beats all others, as torch has it.
template <typename Op, typename V> struct RunningPlace {
    using At = Like<V, int32_t>;
    V best = as<V>(Op::template start<typename Element<V>::type>);
    At at = as<At>(std::numeric_limits<int32_t>::max());
    void take(V x, At place) {
        const auto better = Op::beats(x, best);
        best = choose(better, x, best);
        at = choose(better, place, at);
    }
    void take(V x, int64_t place) { take(x, as<At>(static_cast<int32_t>(place))); }
    // Where nothing beat the start, all values are equal to it.
    auto value() const { return as<Like<V, int64_t>>(choose(truth(at == std::numeric_limits<int32_t>::max()), as<At>(0), at)); }
};
template <int... lane> static inline I numbered(std::integer_sequence<int, lane...>) { return I{lane...}; }
template <typename Op, typename T> struct Place {
    RunningPlace<Op, Vec<T>> wide[UNROLL];
    RunningPlace<Op, T> single;
    template <typename V> void take(Like<V, T> x, int64_t place, int u) {
        if constexpr (is_wide<V>) wide[u].take(x, numbered(std::make_integer_sequence<int, W>()) + static_cast<int32_t>(place));
        else single.take(x, place);
    }
    void merge(T x, int32_t place) {
        const bool same = x == single.best || (x != x && single.best != single.best);
        if (Op::beats(x, single.best) || (same && place < single.at)) single.best = x, single.at = place;
    }
    void merge(const Place& other) {
        for (const auto& part : other.wide)
            for (int lane = 0; lane < W; ++lane) merge(part.best[lane], part.at[lane]);
        merge(other.single.best, other.single.at);
    }
    void settle() {}
    int64_t value() {
        merge(*this);
        return single.value();
    }
};

// ---- scans: what was before is kept wider

// Every lane gets the one `step` before it, or behind it; the first lanes get `rest`.
template <bool Back, int step, typename V, int... lane> static inline V moved(V x, V rest, std::integer_sequence<int, lane...>) {
    return __builtin_shufflevector(x, rest, (Back ? (lane + step < W ? lane + step : W) : (lane < step ? W : lane - step))...);
}
template <typename Op, bool Back, int step = 1, typename V> static inline V scanned(V x) {
    if constexpr (step >= W) return x;
    else {
        const V rest = as<V>(Op::template start<typename Element<V>::type>);
        const V other = moved<Back, step>(x, rest, std::make_integer_sequence<int, W>());
        return scanned<Op, Back, 2 * step>(Op::apply(other, x));
    }
}
// Along the row: a product lane by lane, since parts of it may leave the range of a float where the whole does not.
template <typename Op, typename T, bool Back = false> struct Scan {
    using Kept = std::conditional_t<std::is_same_v<T, float>, double, T>;
    Kept before = Op::template start<Kept>;
    template <typename V> V take(V x) {
        if constexpr (!is_wide<V>) return static_cast<T>(before = Op::apply(before, static_cast<Kept>(x)));
        else if constexpr (std::is_floating_point_v<T> && !std::is_same_v<Op, Product>) {
            const V whole = as<V>(Op::apply(as<Vec<Kept>>(before), as<Vec<Kept>>(scanned<Op, Back>(x))));
            before = Op::apply(before, static_cast<Kept>(scanned<Op, Back>(x)[Back ? 0 : W - 1]));
            return whole;
        } else {
            for (int at = 0; at < W; ++at) {
                const int lane = Back ? W - 1 - at : at;
                x[lane] = static_cast<T>(before = Op::apply(before, static_cast<Kept>(x[lane])));
            }
            return x;
        }
    }
};
// Where every lane is a row of its own.
template <typename Op, typename V> struct RunningScan {
    using T = typename Element<V>::type;
    using Kept = Like<V, std::conditional_t<std::is_same_v<T, float>, double, T>>;
    Kept before = as<Kept>(Op::template start<typename Element<Kept>::type>);
    V take(V x) { return as<V>(before = Op::apply(before, as<Kept>(x))); }
};

// ---- the way along a row

constexpr int64_t SETTLE = 1 << 14;
// body<V>(position, u) over [from, to): vectors of N lanes first, what is left one by one.
template <int N = W, typename Body> static inline void walk(int64_t from, int64_t to, Body&& body) {
    using V = Vec<float, N>;
    int64_t r = from;
    for (; r + UNROLL * N <= to; r += UNROLL * N)
        for (int u = 0; u < UNROLL; ++u) body.template operator()<V>(r + u * N, u);
    for (; r + N <= to; r += N) body.template operator()<V>(r, 0);
    for (; r < to; ++r) body.template operator()<float>(r, 0);
}
template <typename Body, typename... Folds> static inline void walk(int64_t from, int64_t to, Body&& body, Folds&... folds) {
    for (int64_t at = from; at < to; at += SETTLE) {
        walk(at, at + SETTLE < to ? at + SETTLE : to, body);
        if (to - from > SETTLE) (folds.settle(), ...);
    }
}
// The same from the end.
template <typename Body, typename... Folds> static inline void walk_back(int64_t from, int64_t to, Body&& body, Folds&... folds) {
    const int64_t whole = from + (to - from) / W * W;
    for (int64_t r = to - 1; r >= whole; --r) body.template operator()<float>(r, 0);
    for (int64_t r = whole - W; r >= from; r -= W) {
        body.template operator()<F>(r, 0);
        if ((r - from) % SETTLE == 0) (folds.settle(), ...);
    }
}
