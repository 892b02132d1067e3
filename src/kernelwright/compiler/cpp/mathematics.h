// The C library's functions of floats and of doubles. <cmath> takes a compiler longer to read than a kernel does.
#define OF_ONE(name) \
    static inline float name(float x) { return __builtin_##name##f(x); } \
    static inline double name(double x) { return __builtin_##name(x); }
#define OF_TWO(name) \
    static inline float name(float x, float y) { return __builtin_##name##f(x, y); } \
    static inline double name(double x, double y) { return __builtin_##name(x, y); }
// The powers of a whole number wrap around as products do; one of a negative exponent is a fraction.
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
namespace scalar { OF_ONE(floor) }
namespace scalar { OF_ONE(ceil) }
namespace scalar { OF_ONE(trunc) }
namespace scalar { OF_ONE(nearbyint) }
namespace scalar { OF_TWO(fmod) }
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

template <typename V> constexpr bool is_double = std::is_same_v<typename Element<V>::type, double>;
#define FOR_DOUBLES(V, x, f) if constexpr (is_double<V>) return each<V>(x, [](auto v) { return f(v); }); else

// e^r - 1, where x = k * ln(2) + r, |r| <= ln(2)/2 and k is a whole number; x is held within [least, most].
template <typename V> static inline V expm1_of_rest(V x, float least, V& k, float most = 89.0f) {
    const V low = choose(truth(x < as<V>(least)), as<V>(least), x);
    const V c = choose(truth(low > as<V>(most)), as<V>(most), low);
    k = (c * as<V>(1.44269504f) + as<V>(12582912.0f)) - as<V>(12582912.0f);
    const V r = (c - k * as<V>(0.693145752f)) - k * as<V>(1.42860677e-6f);
    V p = as<V>(1.9907574031e-4f);
    p = p * r + as<V>(1.3933652215e-3f);
    p = p * r + as<V>(8.3332860228e-3f);
    p = p * r + as<V>(4.1666464899e-2f);
    p = p * r + as<V>(1.6666666756e-1f);
    p = p * r + as<V>(5.0000000135e-1f);
    return p * r * r + r;
}
// p * 2^k, 2^k in two factors, so that results below the normal range are right too.
template <typename V> static inline V times_power_of_two(V p, V k) {
#if defined(__AVX512F__)
    if constexpr (is_wide<V>) {
        asm("vscalefps %1, %0, %0" : "+v"(p) : "v"(k));
        return p;
    }
#endif
    using N = Like<V, int32_t>;
    const N whole = bits<N>(k + as<V>(12582912.0f)) - as<N>(0x4B400000), half = whole >> 1;
    return p * bits<V>((half + as<N>(127)) << 23) * bits<V>((whole - half + as<N>(127)) << 23);
}
// v * 2^-40 below the normal range, without a product that ends there: processors take hundreds of cycles for one.
template <typename V> static inline V below_normal(V v) {
    const V places = v * as<V>(0x1p109f) + as<V>(0x1p23f);
    return bits<V>(bits<Like<V, int32_t>>(places) - as<Like<V, int32_t>>(0x4B000000));
}
// The same also where `small` says that the product is below the normal range.
template <typename V, typename M> static inline V times_any_power_of_two(V p, V k, M small) {
    const V scaled = times_power_of_two(p, choose(small, k + as<V>(40.0f), k));
    return choose(small, below_normal(choose(small, scaled, as<V>(0.0f))), scaled);
}
// e^x: 1.0 ulp.
template <typename V> static inline V exp_of(V x) {
    FOR_DOUBLES(V, x, scalar::exp) {
        V k;
        const V rest = expm1_of_rest(x, -104.0f, k);
        return times_any_power_of_two(rest + as<V>(1.0f), k, truth(x < as<V>(-87.3365448f)));
    }
}
// 2^x: x = k + r, |r| <= 1/2, k a whole number. 1.2 ulp.
template <typename V> static inline V exp2_of(V x) {
    FOR_DOUBLES(V, x, scalar::exp2) {
        const V low = choose(truth(x < as<V>(-151.0f)), as<V>(-151.0f), x);
        const V c = choose(truth(low > as<V>(128.0f)), as<V>(128.0f), low);
        const V k = (c + as<V>(12582912.0f)) - as<V>(12582912.0f), r = c - k;
        V p = as<V>(1.5469735e-4f);
        p = p * r + as<V>(1.3390867e-3f);
        p = p * r + as<V>(9.618031e-3f);
        p = p * r + as<V>(5.550357e-2f);
        p = p * r + as<V>(2.402265e-1f);
        p = p * r + as<V>(6.931472e-1f);
        return times_any_power_of_two(p * r + as<V>(1.0f), k, truth(x < as<V>(-126.0f)));
    }
}
// e^x * 2^40 for x of 0 and less, a normal number or 0; and what part of `sum`, of such numbers, one of them is.
template <typename V> static inline V exp_scaled_of(V x) {
    V k;
    const V rest = expm1_of_rest(x, -104.0f, k);
    return choose(truth(x < as<V>(-104.0f)), as<V>(0.0f), times_power_of_two(rest + as<V>(1.0f), k + as<V>(40.0f)));
}
template <typename V> static inline V share_of(V one, V sum) {
    const V scaled = one / (sum * as<V>(0x1p-40f));
    const auto small = truth(scaled < as<V>(0x1p-86f));
    const V normal = choose(small, as<V>(1.0f), scaled) * as<V>(0x1p-40f);
    return choose(small, below_normal(choose(small, scaled, as<V>(0.0f))), normal);
}
// e^x - 1, without the loss of digits near 0: 2^k * (e^r - 1) + (2^k - 1), as twice a half, since 2^128 is no float. 1.5 ulp.
template <typename V> static inline V expm1_of(V x) {
    FOR_DOUBLES(V, x, scalar::expm1) {
        V k;
        const V rest = expm1_of_rest(x, -25.0f, k), scale = times_power_of_two(as<V>(0.5f), k);
        const V half = scale * rest + (scale - as<V>(0.5f));
        return half + half;
    }
}
// e^x / 4 for x of 0 and more, which is a float wherever e^x / 2 is.
template <typename V> static inline V quarter_exp_of(V x) {
    V k;
    const V rest = expm1_of_rest(x, 0.0f, k, 90.0f);
    return times_power_of_two(rest + as<V>(1.0f), k - as<V>(2.0f));
}
// x + x * P(x^2) below 1, by exponentials above. 1.6 ulp; the cosine 1.5.
template <typename V> static inline V sinh_of(V x) {
    FOR_DOUBLES(V, x, scalar::sinh) {
        const V size = abs_of(x), s = x * x, quarter = quarter_exp_of(size);
        V p = as<V>(2.8174395e-6f);
        p = p * s + as<V>(1.9836066e-4f);
        p = p * s + as<V>(8.3333505e-3f);
        p = p * s + as<V>(1.6666667e-1f);
        const V large = quarter - as<V>(0.0625f) / quarter;
        return choose(truth(size < as<V>(1.0f)), p * s * x + x, with_sign(large + large, x));
    }
}
template <typename V> static inline V cosh_of(V x) {
    FOR_DOUBLES(V, x, scalar::cosh) {
        const V quarter = quarter_exp_of(abs_of(x)), half = quarter + as<V>(0.0625f) / quarter;
        return half + half;
    }
}

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
// tanh(x): t / (t + 2), where t = e^2|x| - 1, with the sign of x. 2.4 ulp.
template <typename V> static inline V tanh_of(V x) {
    FOR_DOUBLES(V, x, scalar::tanh) {
        using B = Like<V, int32_t>;
        const V size = min_of(abs_of(x), as<V>(10.0f));
        const V t = expm1_of(size + size);
        return bits<V>(bits<B>(t / (t + as<V>(2.0f))) | (bits<B>(x) & as<B>(std::numeric_limits<int32_t>::min())));
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
