// ---- float functions computed in FP64, half a vector at a time

// 2^x for |x| <= 1000; relative error 2^-29.
template <typename D> static inline D exp2_f64(D x) {
    using N = Rebind<D, int64_t>;
    const D shifted = x + convert<D>(0x1.8p52), r = x - (shifted - convert<D>(0x1.8p52));
    D p = convert<D>(0.0001547802467616098);
    p = p * r + convert<D>(0.001340043164531518);
    p = p * r + convert<D>(0.009617994503085732);
    p = p * r + convert<D>(0.055503272158510225);
    p = p * r + convert<D>(0.2402265150519959);
    p = p * r + convert<D>(0.6931472067096262);
    p = p * r + convert<D>(0.9999999999190238);
    return p * bit_cast<D>((bit_cast<N>(shifted) << 52) + convert<N>(0x3FF0000000000000));
}
// log2(x) for x > 0 converted from float: x = 2^k * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)). Error 2^-35.
template <typename D> static inline D log2_f64(D x) {
    using N = Rebind<D, uint64_t>;
    const N biased = (bit_cast<N>(x) + convert<N>(0x3FF0000000000000 - 0x3FE6A09E00000000)) >> 52;
    const D k = bit_cast<D>(biased | convert<N>(0x4330000000000000)) - convert<D>(0x1p52 + 1023);
    const D f = bit_cast<D>(bit_cast<N>(x) - ((biased - convert<N>(1023)) << 52)) - convert<D>(1.0);
    D p = convert<D>(0.07954616054808297);
    p = p * f + convert<D>(-0.1444220561911353);
    p = p * f + convert<D>(0.14446016249550495);
    p = p * f + convert<D>(-0.14276848191381028);
    p = p * f + convert<D>(0.1587641873816061);
    p = p * f + convert<D>(-0.1803358478256955);
    p = p * f + convert<D>(0.20617751147496347);
    p = p * f + convert<D>(-0.24045172852673502);
    p = p * f + convert<D>(0.28853720170050756);
    p = p * f + convert<D>(-0.360673699508089);
    p = p * f + convert<D>(0.48089836250958456);
    p = p * f + convert<D>(-0.7213475207459306);
    p = p * f + convert<D>(1.4426950408667767);
    return p * f + k;
}
// x^y for floats, x > 0.
template <typename V> static inline V pow_positive(V x, V y) {
    using D = Rebind<V, double>;
    const D power = convert<D>(y) * log2_f64(convert<D>(x));
    const D raised = select(power < convert<D>(-200.0), convert<D>(-200.0), power);
    return convert<V>(exp2_f64(select(raised > convert<D>(200.0), convert<D>(200.0), raised)));
}
// 0.6 ulp. Infinities and NaN use the C library.
template <typename V> static inline V vpow(V x, V y) {
    constexpr auto scalar_op = [](auto a, auto b) { return scalar::pow(a, b); };
    constexpr bool too_few_lanes = is_vector<V> && num_lanes<V> < 4;
    if constexpr (too_few_lanes || !std::is_same_v<typename Element<V>::type, float>) {
        return map_lanes<V>(x, y, scalar_op);
    } else {
        const V non_finite = (x - x) + (y - y), zero = convert<V>(0.0f), abs_x = vabs(x);
        if (any_lane(to_mask(non_finite != non_finite))) return map_lanes_cold<V>(x, y, scalar_op);
        V power;
        if constexpr (is_vector<V>)
            power = concat(pow_positive(half<0>(abs_x), half<0>(y)), pow_positive(half<1>(abs_x), half<1>(y)));
        else power = pow_positive(abs_x, y);
        const V zero_power = select(to_mask(y < zero), convert<V>(std::numeric_limits<float>::infinity()), zero);
        power = select(to_mask(x == zero) & to_mask(y != zero), zero_power, power);
        const V half_y = y * convert<V>(0.5f);
        const auto is_integer = to_mask(vtrunc(y) == y), is_odd = is_integer & to_mask(vtrunc(half_y) != half_y);
        power = select(to_mask(x < zero) & ~is_integer, convert<V>(std::numeric_limits<float>::quiet_NaN()), power);
        return select(is_odd, copy_sign(power, x), power);
    }
}

// e^-x^2 * P(t) / (1 + 2x) with t = (x - 2) / (x + 2), for x in [0, 11]; relative error 2^-28.
template <typename D> static inline D erfc_tail(D x) {
    const D one_plus_2x = convert<D>(1.0) + x + x, x_plus_2 = x + convert<D>(2.0);
    const D reciprocal = convert<D>(1.0) / (one_plus_2x * x_plus_2);
    const D t = (x - convert<D>(2.0)) * one_plus_2x * reciprocal;
    D p = convert<D>(7.990726450840577e-05);
    p = p * t + convert<D>(0.00016999654090513405);
    p = p * t + convert<D>(-0.0004013763921526857);
    p = p * t + convert<D>(-0.0014216470170891307);
    p = p * t + convert<D>(0.0012530077531495865);
    p = p * t + convert<D>(0.008709524969580482);
    p = p * t + convert<D>(-0.008030940489971643);
    p = p * t + convert<D>(-0.05421791746983871);
    p = p * t + convert<D>(0.1640510485732666);
    p = p * t + convert<D>(-0.16603051506428587);
    p = p * t + convert<D>(-0.09276382103063056);
    p = p * t + convert<D>(1.276978382603992);
    return exp2_f64(x * x * convert<D>(-1.4426950408889634)) * (p * x_plus_2 * reciprocal);
}
template <typename V> static inline V erfc_f64(V x) {
    using D = Rebind<V, double>;
    const V abs_x = vabs(x);
    const V clamped = select(to_mask(abs_x > convert<V>(11.0f)), convert<V>(11.0f), abs_x);
    const V tail = convert<V>(erfc_tail(convert<D>(clamped)));
    return select(to_mask(x < convert<V>(0.0f)), convert<V>(2.0f) - tail, tail);
}
// 0.8 ulp.
template <typename V> static inline V verfc(V x) {
    constexpr bool too_few_lanes = is_vector<V> && num_lanes<V> < 4;
    if constexpr (too_few_lanes || is_double<V>) return map_lanes<V>(x, [](auto v) { return scalar::erfc(v); });
    else if constexpr (is_vector<V>) return concat(erfc_f64(half<0>(x)), erfc_f64(half<1>(x)));
    else return erfc_f64(x);
}
