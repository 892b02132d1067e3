// ---- functions of angles, of floats by vectors. What a vector cannot do is left to the library, all lanes of it.

#define FOR_DOUBLES_AND_MANY_TURNS(V, x, f) \
    constexpr auto one = [](auto v) { return f(v); }; \
    if constexpr (is_double<V> || !has_fma) return each<V>(x, one); \
    else if (any_lane(truth(abs_of(x) >= as<V>(0x1p17f)))) return each_rare<V>(x, one); \
    else
// x = turns * pi/2 + r + rest: pi/2 in three floats, of which the first leaves an exact difference, and what the second
// loses is kept. For |x| below 2^17.
template <typename V> struct QuarterTurns {
    V r, rest;
    Like<V, int32_t> turns;
    explicit QuarterTurns(V x) {
        const V count = round_of(x * as<V>(0.636619772f)), back = as<V>(0.0f) - count;
        const V first = fused(back, as<V>(1.57079637f), x);
        const V part = as<V>(-4.37113883e-8f), second = fused(back, part, as<V>(0.0f));
        r = first + second;
        const V added = r - first, lost = fused(back, part, as<V>(0.0f) - second);
        rest = (first - (r - added)) + (second - added) + fused(back, as<V>(-1.71512489e-15f), lost);
        turns = as<Like<V, int32_t>>(count);
    }
    V sin() const {
        const V s = r * r;
        V p = as<V>(2.7177146e-06f);
        p = p * s + as<V>(-1.9839272e-4f);
        p = p * s + as<V>(8.333329e-3f);
        p = p * s + as<V>(-1.6666667e-1f);
        return r + (p * s * r + rest);
    }
    V cos() const {
        const V s = r * r, half = as<V>(0.5f) * s, near = as<V>(1.0f) - half;
        V p = as<V>(2.443266e-05f);
        p = p * s + as<V>(-1.3887319e-3f);
        p = p * s + as<V>(4.1666646e-2f);
        return near + ((as<V>(1.0f) - near) - half + (p * s * s - r * rest));
    }
    // The sine so many quarter turns further on.
    V sin_after(int32_t more) const {
        using N = Like<V, int32_t>;
        const N at = turns + as<N>(more);
        return bits<V>(bits<N>(choose(truth((at & 1) != 0), cos(), sin())) ^ (at & 2) << 30);
    }
};
// 0.9 ulp, as is the cosine.
template <typename V> static inline V sin_of(V x) {
    FOR_DOUBLES_AND_MANY_TURNS(V, x, scalar::sin) {
        return choose(truth(x == as<V>(0.0f)), x, QuarterTurns<V>(x).sin_after(0));
    }
}
template <typename V> static inline V cos_of(V x) {
    FOR_DOUBLES_AND_MANY_TURNS(V, x, scalar::cos) {
        return QuarterTurns<V>(x).sin_after(1);
    }
}
// Its own polynomial, and -1 / tan(r) where a quarter turn is left. 1.7 ulp.
template <typename V> static inline V tan_of(V x) {
    FOR_DOUBLES_AND_MANY_TURNS(V, x, scalar::tan) {
        const QuarterTurns<V> at(x);
        const V s = at.r * at.r;
        V p = as<V>(4.4638016e-3f);
        p = p * s + as<V>(-8.44545e-5f);
        p = p * s + as<V>(1.0970169e-2f);
        p = p * s + as<V>(2.1231543e-2f);
        p = p * s + as<V>(5.4069478e-2f);
        p = p * s + as<V>(1.3332582e-1f);
        p = p * s + as<V>(3.3333352e-1f);
        const V tangent = at.r + (p * s * at.r + (at.rest + at.rest * s));
        const V turned = choose(truth((at.turns & 1) != 0), as<V>(-1.0f) / tangent, tangent);
        return choose(truth(x == as<V>(0.0f)), x, turned);
    }
}

// asin(x) - x below 1/2, of x and its square.
template <typename V> static inline V asin_rest(V x, V s) {
    V p = as<V>(3.756522e-2f);
    p = p * s + as<V>(1.44025935e-2f);
    p = p * s + as<V>(3.1817615e-2f);
    p = p * s + as<V>(4.451572e-2f);
    p = p * s + as<V>(7.500511e-2f);
    p = p * s + as<V>(1.666666e-1f);
    return p * s * x;
}
// pi/2 - (x + rest), with what pi/2 loses as a float.
template <typename V> static inline V quarter_turn_less(V x, V rest) {
    return (as<V>(1.57079637f) - x) - (rest + as<V>(4.37113883e-8f));
}
// Above 1/2 by the angle of half the rest, asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)). 2.0 ulp; acos 1.2.
template <typename V> static inline V asin_of(V x) {
    FOR_DOUBLES(V, x, scalar::asin) {
        const V size = abs_of(x);
        const auto large = truth(size > as<V>(0.5f));
        const V s = choose(large, (as<V>(1.0f) - size) * as<V>(0.5f), size * size), root = choose(large, sqrt_of(s), size);
        const V rest = asin_rest(root, s);
        return with_sign(choose(large, quarter_turn_less(root + root, rest + rest), root + rest), x);
    }
}
template <typename V> static inline V acos_of(V x) {
    FOR_DOUBLES(V, x, scalar::acos) {
        const V size = abs_of(x);
        const auto large = truth(size > as<V>(0.5f));
        const V s = choose(large, (as<V>(1.0f) - size) * as<V>(0.5f), size * size), root = choose(large, sqrt_of(s), x);
        const V rest = asin_rest(root, s), less = quarter_turn_less(root, rest);
        const V twice = choose(truth(x < as<V>(0.0f)), less, root + rest);
        return choose(large, twice + twice, less);
    }
}
// Above 1 by the angle that is left of a quarter turn. 1.4 ulp.
template <typename V> static inline V atan_of(V x) {
    FOR_DOUBLES(V, x, scalar::atan) {
        const V size = abs_of(x);
        const auto large = truth(size > as<V>(1.0f));
        const V t = choose(large, as<V>(1.0f) / size, size), s = t * t;
        V p = as<V>(-1.7936262e-3f);
        p = p * s + as<V>(1.09146265e-2f);
        p = p * s + as<V>(-3.1177886e-2f);
        p = p * s + as<V>(5.7957634e-2f);
        p = p * s + as<V>(-8.4034525e-2f);
        p = p * s + as<V>(1.09521866e-1f);
        p = p * s + as<V>(-1.4264242e-1f);
        p = p * s + as<V>(1.9998549e-1f);
        p = p * s + as<V>(-3.33333e-1f);
        const V rest = p * s * t;
        return with_sign(choose(large, quarter_turn_less(t, rest), t + rest), x);
    }
}
