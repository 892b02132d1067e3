// ---- functions of floats that are computed in doubles, half a vector at a time

// 2^x for doubles that lie within +-1000: 2^-29 off.
template <typename D> static inline D power_of_two(D x) {
    using N = Like<D, int64_t>;
    const D shifted = x + as<D>(0x1.8p52), r = x - (shifted - as<D>(0x1.8p52));
    D p = as<D>(0.0001547802467616098);
    p = p * r + as<D>(0.001340043164531518);
    p = p * r + as<D>(0.009617994503085732);
    p = p * r + as<D>(0.055503272158510225);
    p = p * r + as<D>(0.2402265150519959);
    p = p * r + as<D>(0.6931472067096262);
    p = p * r + as<D>(0.9999999999190238);
    return p * bits<D>((bits<N>(shifted) << 52) + as<N>(0x3FF0000000000000));
}
// log2(x) for doubles above 0 that were floats: x = 2^k * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)). 2^-35 off.
template <typename D> static inline D logarithm_to_two(D x) {
    using N = Like<D, uint64_t>;
    const N biased = (bits<N>(x) + as<N>(0x3FF0000000000000 - 0x3FE6A09E00000000)) >> 52;
    const D k = bits<D>(biased | as<N>(0x4330000000000000)) - as<D>(0x1p52 + 1023);
    const D f = bits<D>(bits<N>(x) - ((biased - as<N>(1023)) << 52)) - as<D>(1.0);
    D p = as<D>(0.07954616054808297);
    p = p * f + as<D>(-0.1444220561911353);
    p = p * f + as<D>(0.14446016249550495);
    p = p * f + as<D>(-0.14276848191381028);
    p = p * f + as<D>(0.1587641873816061);
    p = p * f + as<D>(-0.1803358478256955);
    p = p * f + as<D>(0.20617751147496347);
    p = p * f + as<D>(-0.24045172852673502);
    p = p * f + as<D>(0.28853720170050756);
    p = p * f + as<D>(-0.360673699508089);
    p = p * f + as<D>(0.48089836250958456);
    p = p * f + as<D>(-0.7213475207459306);
    p = p * f + as<D>(1.4426950408667767);
    return p * f + k;
}
// x^y for floats, x above 0.
template <typename V> static inline V positive_power(V x, V y) {
    using D = Like<V, double>;
    const D power = as<D>(y) * logarithm_to_two(as<D>(x));
    const D low = choose(power < as<D>(-200.0), as<D>(-200.0), power);
    return as<V>(power_of_two(choose(low > as<D>(200.0), as<D>(200.0), low)));
}
// 0.6 ulp. Infinities and NaN are left to the library.
template <typename V> static inline V pow_of(V x, V y) {
    constexpr auto one = [](auto a, auto b) { return scalar::pow(a, b); };
    constexpr bool few = is_wide<V> && lanes<V> < 4;
    if constexpr (few || !std::is_same_v<typename Element<V>::type, float>) return each<V>(x, y, one);
    else {
        const V none = (x - x) + (y - y), zero = as<V>(0.0f), size = abs_of(x);
        if (any_lane(truth(none != none))) return each_rare<V>(x, y, one);
        V power;
        if constexpr (is_wide<V>)
            power = joined(positive_power(half<0>(size), half<0>(y)), positive_power(half<1>(size), half<1>(y)));
        else power = positive_power(size, y);
        const V of_zero = choose(truth(y < zero), as<V>(std::numeric_limits<float>::infinity()), zero);
        power = choose(truth(x == zero) & truth(y != zero), of_zero, power);
        const auto whole = truth(trunc_of(y) == y), odd = whole & truth(trunc_of(y * as<V>(0.5f)) != y * as<V>(0.5f));
        power = choose(truth(x < zero) & ~whole, as<V>(std::numeric_limits<float>::quiet_NaN()), power);
        return choose(odd, with_sign(power, x), power);
    }
}

// e^-x^2 * P(t) / (1 + 2x) with t = (x - 2) / (x + 2), for x in [0, 11]: 2^-28 off.
template <typename D> static inline D erfc_tail(D x) {
    const D one = as<D>(1.0) + x + x, two = x + as<D>(2.0), both = as<D>(1.0) / (one * two);
    const D t = (x - as<D>(2.0)) * one * both;
    D p = as<D>(7.990726450840577e-05);
    p = p * t + as<D>(0.00016999654090513405);
    p = p * t + as<D>(-0.0004013763921526857);
    p = p * t + as<D>(-0.0014216470170891307);
    p = p * t + as<D>(0.0012530077531495865);
    p = p * t + as<D>(0.008709524969580482);
    p = p * t + as<D>(-0.008030940489971643);
    p = p * t + as<D>(-0.05421791746983871);
    p = p * t + as<D>(0.1640510485732666);
    p = p * t + as<D>(-0.16603051506428587);
    p = p * t + as<D>(-0.09276382103063056);
    p = p * t + as<D>(1.276978382603992);
    return power_of_two(x * x * as<D>(-1.4426950408889634)) * (p * two * both);
}
template <typename V> static inline V erfc_by_doubles(V x) {
    using D = Like<V, double>;
    const V size = abs_of(x);
    const V tail = as<V>(erfc_tail(as<D>(choose(truth(size > as<V>(11.0f)), as<V>(11.0f), size))));
    return choose(truth(x < as<V>(0.0f)), as<V>(2.0f) - tail, tail);
}
// 0.8 ulp.
template <typename V> static inline V erfc_of(V x) {
    constexpr bool few = is_wide<V> && lanes<V> < 4;
    if constexpr (few || is_double<V>) return each<V>(x, [](auto v) { return scalar::erfc(v); });
    else if constexpr (is_wide<V>) return joined(erfc_by_doubles(half<0>(x)), erfc_by_doubles(half<1>(x)));
    else return erfc_by_doubles(x);
}
