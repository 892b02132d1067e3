// The C library's float and double functions. Parsing <cmath> takes longer than compiling a kernel.
#define DEFINE_UNARY(name) \
    static inline float name(float x) { return __builtin_##name##f(x); } \
    static inline double name(double x) { return __builtin_##name(x); }
#define DEFINE_BINARY(name) \
    static inline float name(float x, float y) { return __builtin_##name##f(x, y); } \
    static inline double name(double x, double y) { return __builtin_##name(x, y); }
// Integer power, modulo 2^bits; a negative exponent truncates to 0 or +-1.
template <typename T> static inline T int_pow(T x, T y) {
    using U = std::make_unsigned_t<T>;
    if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
    U power = 1, square = U(x);
    for (U remaining = U(y); remaining; remaining /= 2, square *= square) if (remaining % 2) power *= square;
    return T(power);
}
namespace scalar { DEFINE_UNARY(sqrt) }
namespace scalar { DEFINE_UNARY(exp) }
namespace scalar { DEFINE_UNARY(exp2) }
namespace scalar { DEFINE_UNARY(expm1) }
namespace scalar { DEFINE_UNARY(log) }
namespace scalar { DEFINE_UNARY(log2) }
namespace scalar { DEFINE_UNARY(log10) }
namespace scalar { DEFINE_UNARY(log1p) }
namespace scalar { DEFINE_UNARY(sin) }
namespace scalar { DEFINE_UNARY(cos) }
namespace scalar { DEFINE_UNARY(tan) }
namespace scalar { DEFINE_UNARY(asin) }
namespace scalar { DEFINE_UNARY(acos) }
namespace scalar { DEFINE_UNARY(atan) }
namespace scalar { DEFINE_UNARY(sinh) }
namespace scalar { DEFINE_UNARY(cosh) }
namespace scalar { DEFINE_UNARY(tanh) }
namespace scalar { DEFINE_UNARY(erf) }
namespace scalar { DEFINE_UNARY(erfc) }
namespace scalar { DEFINE_UNARY(floor) }
namespace scalar { DEFINE_UNARY(ceil) }
namespace scalar { DEFINE_UNARY(trunc) }
namespace scalar { DEFINE_UNARY(nearbyint) }
namespace scalar { DEFINE_BINARY(fmod) }
namespace scalar {
    DEFINE_BINARY(pow)
    template <typename T> requires std::is_integral_v<T> static inline T pow(T x, T y) { return int_pow(x, y); }
}

// Propagates NaN from either operand, as torch does.
template <typename V> static inline V vmax(V a, V b) { return select(to_mask((a > b) | (a != a)), a, b); }
template <typename V> static inline V vmin(V a, V b) { return select(to_mask((a < b) | (a != a)), a, b); }
template <typename V> static inline V vabs(V x) {
    if constexpr (std::is_floating_point_v<typename Element<V>::type>) {
        using T = std::conditional_t<sizeof(typename Element<V>::type) == 4, int32_t, int64_t>;
        using B = Rebind<V, T>;
        return bit_cast<V>(bit_cast<B>(x) & convert<B>(std::numeric_limits<T>::max()));
    } else return select(to_mask(x < convert<V>(0)), convert<V>(0) - x, x);
}
template <typename V> static inline V vsign(V x) {
    const V negative = select(to_mask(x < convert<V>(0)), convert<V>(-1), convert<V>(0));
    return select(to_mask(x > convert<V>(0)), convert<V>(1), negative);
}
// sqrt may set errno, which prevents vectorisation.
template <typename V> static inline V vsqrt(V x) {
#if defined(__AVX__)
    if constexpr (is_vector<V> && std::is_same_v<typename Element<V>::type, float> && sizeof(V) >= 16) {
        V root;
        asm("vsqrtps %1, %0" : "=v"(root) : "v"(x));
        return root;
    } else
#endif
        return map_lanes<V>(x, [](auto v) { return scalar::sqrt(v); });
}

template <typename V> constexpr bool is_double = std::is_same_v<typename Element<V>::type, double>;
#define SCALAR_IF_DOUBLE(V, x, f) if constexpr (is_double<V>) return map_lanes<V>(x, [](auto v) { return f(v); }); else

// e^r - 1, where x = k * ln(2) + r, |r| <= ln(2)/2 and k is an integer; x is clamped to [min_x, max_x].
template <typename V> static inline V expm1_reduced(V x, float min_x, V& k, float max_x = 89.0f) {
    const V raised = select(to_mask(x < convert<V>(min_x)), convert<V>(min_x), x);
    const V clamped = select(to_mask(raised > convert<V>(max_x)), convert<V>(max_x), raised);
    k = (clamped * convert<V>(1.44269504f) + convert<V>(12582912.0f)) - convert<V>(12582912.0f);
    const V r = (clamped - k * convert<V>(0.693145752f)) - k * convert<V>(1.42860677e-6f);
    V p = convert<V>(1.9907574031e-4f);
    p = p * r + convert<V>(1.3933652215e-3f);
    p = p * r + convert<V>(8.3332860228e-3f);
    p = p * r + convert<V>(4.1666464899e-2f);
    p = p * r + convert<V>(1.6666666756e-1f);
    p = p * r + convert<V>(5.0000000135e-1f);
    return p * r * r + r;
}
// p * 2^k, with 2^k as two factors, so that subnormal results are right.
template <typename V> static inline V scale_by_pow2(V p, V k) {
#if defined(__AVX512F__)
    if constexpr (is_vector<V>) {
        asm("vscalefps %1, %0, %0" : "+v"(p) : "v"(k));
        return p;
    }
#endif
    using N = Rebind<V, int32_t>;
    const N exponent = bit_cast<N>(k + convert<V>(12582912.0f)) - convert<N>(0x4B400000), half_exponent = exponent >> 1;
    return p * bit_cast<V>((half_exponent + convert<N>(127)) << 23) *
           bit_cast<V>((exponent - half_exponent + convert<N>(127)) << 23);
}
// v * 2^-40 as a subnormal, by integer arithmetic: a multiplication with a subnormal result takes hundreds of cycles.
template <typename V> static inline V to_subnormal(V v) {
    const V shifted = v * convert<V>(0x1p109f) + convert<V>(0x1p23f);
    return bit_cast<V>(bit_cast<Rebind<V, int32_t>>(shifted) - convert<Rebind<V, int32_t>>(0x4B000000));
}
// scale_by_pow2 without slow multiplications where `is_subnormal` marks subnormal results.
template <typename V, typename M> static inline V scale_by_pow2_subnormal(V p, V k, M is_subnormal) {
    const V scaled = scale_by_pow2(p, select(is_subnormal, k + convert<V>(40.0f), k));
    return select(is_subnormal, to_subnormal(select(is_subnormal, scaled, convert<V>(0.0f))), scaled);
}
// e^x: 1.0 ulp.
template <typename V> static inline V vexp(V x) {
    SCALAR_IF_DOUBLE(V, x, scalar::exp) {
        V k;
        const V expm1_r = expm1_reduced(x, -104.0f, k);
        return scale_by_pow2_subnormal(expm1_r + convert<V>(1.0f), k, to_mask(x < convert<V>(-87.3365448f)));
    }
}
// 2^x: x = k + r, |r| <= 1/2, k an integer. 1.2 ulp.
template <typename V> static inline V vexp2(V x) {
    SCALAR_IF_DOUBLE(V, x, scalar::exp2) {
        const V raised = select(to_mask(x < convert<V>(-151.0f)), convert<V>(-151.0f), x);
        const V clamped = select(to_mask(raised > convert<V>(128.0f)), convert<V>(128.0f), raised);
        const V k = (clamped + convert<V>(12582912.0f)) - convert<V>(12582912.0f), r = clamped - k;
        V p = convert<V>(1.5469735e-4f);
        p = p * r + convert<V>(1.3390867e-3f);
        p = p * r + convert<V>(9.618031e-3f);
        p = p * r + convert<V>(5.550357e-2f);
        p = p * r + convert<V>(2.402265e-1f);
        p = p * r + convert<V>(6.931472e-1f);
        return scale_by_pow2_subnormal(p * r + convert<V>(1.0f), k, to_mask(x < convert<V>(-126.0f)));
    }
}
// e^x * 2^40 for x <= 0: normal or 0. scaled_div divides one of these by a sum of them.
template <typename V> static inline V vexp_scaled(V x) {
    V k;
    const V expm1_r = expm1_reduced(x, -104.0f, k);
    const V scaled = scale_by_pow2(expm1_r + convert<V>(1.0f), k + convert<V>(40.0f));
    return select(to_mask(x < convert<V>(-104.0f)), convert<V>(0.0f), scaled);
}
template <typename V> static inline V scaled_div(V numerator, V sum) {
    const V scaled = numerator / (sum * convert<V>(0x1p-40f));
    const auto is_subnormal = to_mask(scaled < convert<V>(0x1p-86f));
    const V normal = select(is_subnormal, convert<V>(1.0f), scaled) * convert<V>(0x1p-40f);
    return select(is_subnormal, to_subnormal(select(is_subnormal, scaled, convert<V>(0.0f))), normal);
}
// e^x - 1 without cancellation near 0: 2^k * (e^r - 1) + (2^k - 1), computed at half scale since 2^128 overflows.
// 1.5 ulp.
template <typename V> static inline V vexpm1(V x) {
    SCALAR_IF_DOUBLE(V, x, scalar::expm1) {
        V k;
        const V expm1_r = expm1_reduced(x, -25.0f, k), scale = scale_by_pow2(convert<V>(0.5f), k);
        const V half_result = scale * expm1_r + (scale - convert<V>(0.5f));
        return half_result + half_result;
    }
}
// e^x / 4 for x >= 0; finite wherever e^x / 2 is.
template <typename V> static inline V exp_quarter(V x) {
    V k;
    const V expm1_r = expm1_reduced(x, 0.0f, k, 90.0f);
    return scale_by_pow2(expm1_r + convert<V>(1.0f), k - convert<V>(2.0f));
}
// x + x * P(x^2) below 1, from exponentials above. 1.6 ulp; cosh 1.5.
template <typename V> static inline V vsinh(V x) {
    SCALAR_IF_DOUBLE(V, x, scalar::sinh) {
        const V abs_x = vabs(x), x2 = x * x, quarter = exp_quarter(abs_x);
        V p = convert<V>(2.8174395e-6f);
        p = p * x2 + convert<V>(1.9836066e-4f);
        p = p * x2 + convert<V>(8.3333505e-3f);
        p = p * x2 + convert<V>(1.6666667e-1f);
        const V large = quarter - convert<V>(0.0625f) / quarter;
        return select(to_mask(abs_x < convert<V>(1.0f)), p * x2 * x + x, copy_sign(large + large, x));
    }
}
template <typename V> static inline V vcosh(V x) {
    SCALAR_IF_DOUBLE(V, x, scalar::cosh) {
        const V quarter = exp_quarter(vabs(x)), half_result = quarter + convert<V>(0.0625f) / quarter;
        return half_result + half_result;
    }
}

// x = 2^k * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); `poly` = log(1 + f) - f.
template <typename V> struct LogReduction {
    V k, f, poly;
    explicit LogReduction(V x) {
        using N = Rebind<V, int32_t>;
        const auto is_subnormal = to_mask(x < convert<V>(1.17549435e-38f));
        const V scaled = select(is_subnormal, x * convert<V>(8388608.0f), x);
        const N k_offset = select(is_subnormal, convert<N>(23), convert<N>(0));
        const N rebased = bit_cast<N>(scaled) - convert<N>(0x3F3504F3);
        k = convert<V>((rebased >> 23) - k_offset);
        f = bit_cast<V>((rebased & convert<N>(0x007FFFFF)) + convert<N>(0x3F3504F3)) - convert<V>(1.0f);
        V p = convert<V>(7.3322428559e-2f);
        p = p * f + convert<V>(-1.1659798204e-1f);
        p = p * f + convert<V>(1.1634708070e-1f);
        p = p * f + convert<V>(-1.2396721809e-1f);
        p = p * f + convert<V>(1.4251153240e-1f);
        p = p * f + convert<V>(-1.6669150000e-1f);
        p = p * f + convert<V>(2.0000688134e-1f);
        p = p * f + convert<V>(-2.4999981198e-1f);
        p = p * f + convert<V>(3.3333331257e-1f);
        poly = p * f * f * f - convert<V>(0.5f) * f * f;
    }
};
// r, or the logarithm of x where x is 0, negative, infinite or NaN.
template <typename V> static inline V fix_log_special_cases(V x, V r) {
    const float infinity = std::numeric_limits<float>::infinity();
    r = select(to_mask(x == convert<V>(infinity)), convert<V>(infinity), r);
    r = select(to_mask(x == convert<V>(0.0f)), convert<V>(-infinity), r);
    const V nan = convert<V>(std::numeric_limits<float>::quiet_NaN());
    return select(to_mask(x < convert<V>(0.0f)) | to_mask(x != x), nan, r);
}
// 0.9 ulp, also for log2 and log10.
template <typename V> static inline V vlog(V x) {
    SCALAR_IF_DOUBLE(V, x, scalar::log) {
        const LogReduction<V> reduced(x);
        const V low = reduced.poly + reduced.k * convert<V>(-2.12194440e-4f);
        return fix_log_special_cases(x, low + reduced.f + reduced.k * convert<V>(0.693359375f));
    }
}
// Another base: log(2) and log(e) in that base are split in high and low terms, so that log_2_hi * k and
// log_e_hi * f_hi are exact and an integer result comes out exact.
template <typename V> static inline V log_to_base(V x, float log_2_hi, float log_2_lo, float log_e_hi, float log_e_lo) {
    const LogReduction<V> reduced(x);
    const V f_hi = bit_cast<V>(bit_cast<Rebind<V, int32_t>>(reduced.f) & convert<Rebind<V, int32_t>>(-4096));
    const V k_term = reduced.k * convert<V>(log_2_hi), f_term = f_hi * convert<V>(log_e_hi), sum = k_term + f_term;
    const V sum_error = f_term - (sum - k_term);
    const V low_terms = reduced.k * convert<V>(log_2_lo) +
                        (reduced.f * convert<V>(log_e_lo) + reduced.poly * convert<V>(log_e_hi + log_e_lo));
    return fix_log_special_cases(x, sum + (sum_error + ((reduced.f - f_hi) * convert<V>(log_e_hi) + low_terms)));
}
template <typename V> static inline V vlog2(V x) {
    SCALAR_IF_DOUBLE(V, x, scalar::log2) return log_to_base(x, 1.0f, 0.0f, 1.4423828125f, 3.122284e-4f);
}
template <typename V> static inline V vlog10(V x) {
    SCALAR_IF_DOUBLE(V, x, scalar::log10)
        return log_to_base(x, 0.301025390625f, 4.605039e-6f, 0.4342041015625f, 9.038034e-5f);
}
// log(1 + x), corrected for the rounding error of 1 + x.
template <typename V> static inline V vlog1p(V x) {
    SCALAR_IF_DOUBLE(V, x, scalar::log1p) {
        const V u = convert<V>(1.0f) + x;
        const V rounding_error = x - (u - convert<V>(1.0f));
        const V corrected = vlog(u) + rounding_error / u;
        const auto is_one = to_mask(u == convert<V>(1.0f));
        const V infinity = convert<V>(std::numeric_limits<float>::infinity());
        const auto is_infinite = to_mask(x == infinity) | to_mask(u == convert<V>(0.0f));
        return select(is_infinite, vlog(u), select(is_one, x, corrected));
    }
}
// tanh(x): t / (t + 2), where t = e^2|x| - 1, with the sign of x. 2.4 ulp.
template <typename V> static inline V vtanh(V x) {
    SCALAR_IF_DOUBLE(V, x, scalar::tanh) {
        using B = Rebind<V, int32_t>;
        const V clamped_abs = vmin(vabs(x), convert<V>(10.0f));
        const V t = vexpm1(clamped_abs + clamped_abs);
        const B sign_bit = convert<B>(std::numeric_limits<int32_t>::min());
        return bit_cast<V>(bit_cast<B>(t / (t + convert<V>(2.0f))) | (bit_cast<B>(x) & sign_bit));
    }
}
template <typename V> static inline V vsigmoid(V x) {
    return convert<V>(1.0f) / (convert<V>(1.0f) + vexp(convert<V>(0.0f) - x));
}
// erf(x): x + x * P(x^2) below 1, 1 - e^-Q(|x|) above.
template <typename V> static inline V verf(V x) {
    SCALAR_IF_DOUBLE(V, x, scalar::erf) {
        const V x2 = x * x;
        V p = convert<V>(-9.6801296720e-6f);
        p = p * x2 + convert<V>(1.1270542148e-4f);
        p = p * x2 + convert<V>(-8.4847111288e-4f);
        p = p * x2 + convert<V>(5.2210748564e-3f);
        p = p * x2 + convert<V>(-2.6865445814e-2f);
        p = p * x2 + convert<V>(1.1283782747e-1f);
        p = p * x2 + convert<V>(-3.7612638484e-1f);
        p = p * x2 + convert<V>(1.2837916706e-1f);
        const V t = vmin(vabs(x), convert<V>(4.1f));
        V q = convert<V>(-4.6333646378e-8f);
        q = q * t + convert<V>(2.2362432655e-5f);
        q = q * t + convert<V>(-4.4556089264e-4f);
        q = q * t + convert<V>(4.2193614300e-3f);
        q = q * t + convert<V>(-2.5240033561e-2f);
        q = q * t + convert<V>(1.0846141118e-1f);
        q = q * t + convert<V>(6.3318448276e-1f);
        q = q * t + convert<V>(1.1295948452f);
        q = q * t + convert<V>(-1.9131222239e-4f);
        const V large = convert<V>(1.0f) - vexp(convert<V>(0.0f) - q);
        const V signed_large = select(to_mask(x < convert<V>(0.0f)), convert<V>(0.0f) - large, large);
        return select(to_mask(vabs(x) < convert<V>(1.0f)) | to_mask(x != x), p * x + x, signed_large);
    }
}
