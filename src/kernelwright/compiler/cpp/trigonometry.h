// ---- trigonometry of floats; a vector with a lane out of range goes to the C library lane by lane

#define SCALAR_IF_DOUBLE_OR_LARGE(V, x, f) \
    constexpr auto scalar_op = [](auto v) { return f(v); }; \
    if constexpr (is_double<V> || !has_fma) return map_lanes<V>(x, scalar_op); \
    else if (any_lane(to_mask(vabs(x) >= convert<V>(0x1p17f)))) return map_lanes_cold<V>(x, scalar_op); \
    else
// x = quadrant * pi/2 + r + r_lo, for |x| < 2^17. pi/2 is the sum of three floats: the difference with the first is
// exact, and the rounding error of the product with the second goes into r_lo.
template <typename V> struct PiOver2Reduction {
    V r, r_lo;
    Rebind<V, int32_t> quadrant;
    explicit PiOver2Reduction(V x) {
        const V count = vround(x * convert<V>(0.636619772f)), neg_count = convert<V>(0.0f) - count;
        const V upper = fma(neg_count, convert<V>(1.57079637f), x);
        const V pi_over_2_mid = convert<V>(-4.37113883e-8f), product = fma(neg_count, pi_over_2_mid, convert<V>(0.0f));
        r = upper + product;
        const V r_increment = r - upper, product_error = fma(neg_count, pi_over_2_mid, convert<V>(0.0f) - product);
        r_lo = (upper - (r - r_increment)) + (product - r_increment) +
               fma(neg_count, convert<V>(-1.71512489e-15f), product_error);
        quadrant = convert<Rebind<V, int32_t>>(count);
    }
    V sin() const {
        const V r2 = r * r;
        V p = convert<V>(2.7177146e-06f);
        p = p * r2 + convert<V>(-1.9839272e-4f);
        p = p * r2 + convert<V>(8.333329e-3f);
        p = p * r2 + convert<V>(-1.6666667e-1f);
        return r + (p * r2 * r + r_lo);
    }
    V cos() const {
        const V r2 = r * r, half_r2 = convert<V>(0.5f) * r2, leading = convert<V>(1.0f) - half_r2;
        V p = convert<V>(2.443266e-05f);
        p = p * r2 + convert<V>(-1.3887319e-3f);
        p = p * r2 + convert<V>(4.1666646e-2f);
        return leading + ((convert<V>(1.0f) - leading) - half_r2 + (p * r2 * r2 - r * r_lo));
    }
    // sin(x + quadrants * pi/2).
    V sin_shifted(int32_t quadrants) const {
        using N = Rebind<V, int32_t>;
        const N shifted = quadrant + convert<N>(quadrants);
        return bit_cast<V>(bit_cast<N>(select(to_mask((shifted & 1) != 0), cos(), sin())) ^ (shifted & 2) << 30);
    }
};
// 0.9 ulp, also for cos.
template <typename V> static inline V vsin(V x) {
    SCALAR_IF_DOUBLE_OR_LARGE(V, x, scalar::sin) {
        return select(to_mask(x == convert<V>(0.0f)), x, PiOver2Reduction<V>(x).sin_shifted(0));
    }
}
template <typename V> static inline V vcos(V x) {
    SCALAR_IF_DOUBLE_OR_LARGE(V, x, scalar::cos) {
        return PiOver2Reduction<V>(x).sin_shifted(1);
    }
}
// A polynomial, and -1 / tan(r) in odd quadrants. 1.7 ulp.
template <typename V> static inline V vtan(V x) {
    SCALAR_IF_DOUBLE_OR_LARGE(V, x, scalar::tan) {
        const PiOver2Reduction<V> reduced(x);
        const V r2 = reduced.r * reduced.r;
        V p = convert<V>(4.4638016e-3f);
        p = p * r2 + convert<V>(-8.44545e-5f);
        p = p * r2 + convert<V>(1.0970169e-2f);
        p = p * r2 + convert<V>(2.1231543e-2f);
        p = p * r2 + convert<V>(5.4069478e-2f);
        p = p * r2 + convert<V>(1.3332582e-1f);
        p = p * r2 + convert<V>(3.3333352e-1f);
        const V tangent = reduced.r + (p * r2 * reduced.r + (reduced.r_lo + reduced.r_lo * r2));
        const V result = select(to_mask((reduced.quadrant & 1) != 0), convert<V>(-1.0f) / tangent, tangent);
        return select(to_mask(x == convert<V>(0.0f)), x, result);
    }
}

// asin(x) - x for |x| <= 1/2; x2 is x * x.
template <typename V> static inline V asin_poly(V x, V x2) {
    V p = convert<V>(3.756522e-2f);
    p = p * x2 + convert<V>(1.44025935e-2f);
    p = p * x2 + convert<V>(3.1817615e-2f);
    p = p * x2 + convert<V>(4.451572e-2f);
    p = p * x2 + convert<V>(7.500511e-2f);
    p = p * x2 + convert<V>(1.666666e-1f);
    return p * x2 * x;
}
// pi/2 - (x + x_lo), with the low bits of pi/2.
template <typename V> static inline V pi_over_2_minus(V x, V x_lo) {
    return (convert<V>(1.57079637f) - x) - (x_lo + convert<V>(4.37113883e-8f));
}
// Above 1/2: asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)). 2.0 ulp; acos 1.2.
template <typename V> static inline V vasin(V x) {
    SCALAR_IF_DOUBLE(V, x, scalar::asin) {
        const V abs_x = vabs(x);
        const auto large = to_mask(abs_x > convert<V>(0.5f));
        const V square = select(large, (convert<V>(1.0f) - abs_x) * convert<V>(0.5f), abs_x * abs_x);
        const V root = select(large, vsqrt(square), abs_x);
        const V poly = asin_poly(root, square);
        return copy_sign(select(large, pi_over_2_minus(root + root, poly + poly), root + poly), x);
    }
}
template <typename V> static inline V vacos(V x) {
    SCALAR_IF_DOUBLE(V, x, scalar::acos) {
        const V abs_x = vabs(x);
        const auto large = to_mask(abs_x > convert<V>(0.5f));
        const V square = select(large, (convert<V>(1.0f) - abs_x) * convert<V>(0.5f), abs_x * abs_x);
        const V root = select(large, vsqrt(square), x);
        const V poly = asin_poly(root, square), complement = pi_over_2_minus(root, poly);
        const V half_angle = select(to_mask(x < convert<V>(0.0f)), complement, root + poly);
        return select(large, half_angle + half_angle, complement);
    }
}
// Above 1: atan(x) = pi/2 - atan(1 / x). 1.4 ulp.
template <typename V> static inline V vatan(V x) {
    SCALAR_IF_DOUBLE(V, x, scalar::atan) {
        const V abs_x = vabs(x);
        const auto large = to_mask(abs_x > convert<V>(1.0f));
        const V t = select(large, convert<V>(1.0f) / abs_x, abs_x), t2 = t * t;
        V p = convert<V>(-1.7936262e-3f);
        p = p * t2 + convert<V>(1.09146265e-2f);
        p = p * t2 + convert<V>(-3.1177886e-2f);
        p = p * t2 + convert<V>(5.7957634e-2f);
        p = p * t2 + convert<V>(-8.4034525e-2f);
        p = p * t2 + convert<V>(1.09521866e-1f);
        p = p * t2 + convert<V>(-1.4264242e-1f);
        p = p * t2 + convert<V>(1.9998549e-1f);
        p = p * t2 + convert<V>(-3.33333e-1f);
        const V poly = p * t2 * t;
        return copy_sign(select(large, pi_over_2_minus(t, poly), t + poly), x);
    }
}
