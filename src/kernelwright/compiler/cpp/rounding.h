// ---- rounding, remainders and integer division: exact

// x rounded to an integer by the instruction with an immediate rounding mode, or by `scalar_op` lane by lane, which the
// compiler does not vectorise. Integers are returned unchanged.
template <int mode, typename V, typename ScalarOp> static inline V round_with_mode(V x, ScalarOp scalar_op) {
    if constexpr (std::is_integral_v<typename Element<V>::type>) return x;
#if defined(__AVX__)
    else if constexpr (is_vector<V> && std::is_same_v<typename Element<V>::type, float> && sizeof(V) >= 16) {
        V rounded;
        if constexpr (sizeof(V) == 64) asm("vrndscaleps %2, %1, %0" : "=v"(rounded) : "v"(x), "i"(mode));
        else asm("vroundps %2, %1, %0" : "=x"(rounded) : "x"(x), "i"(mode));
        return rounded;
    }
#endif
    else return map_lanes<V>(x, scalar_op);
}
template <typename V> static inline V vround(V x) {
    return round_with_mode<8>(x, [](auto v) { return scalar::nearbyint(v); });
}
template <typename V> static inline V vfloor(V x) {
    return round_with_mode<9>(x, [](auto v) { return scalar::floor(v); });
}
template <typename V> static inline V vceil(V x) {
    return round_with_mode<10>(x, [](auto v) { return scalar::ceil(v); });
}
template <typename V> static inline V vtrunc(V x) {
    return round_with_mode<11>(x, [](auto v) { return scalar::trunc(v); });
}

// Exact remainder of truncated division. A quotient below 2^22 is at most one too large, where x / y was rounded up to
// an integer; the remainder is a float then too. Larger quotients use the C library.
template <typename V> static inline V vfmod(V x, V y) {
    constexpr auto scalar_op = [](auto a, auto b) { return scalar::fmod(a, b); };
    if constexpr (!has_fma || !is_vector<V> || is_double<V>) return map_lanes<V>(x, y, scalar_op);
    else {
        const V abs_x = vabs(x), divisor = vabs(y), quotient = vabs(x / y);
        if (any_lane(to_mask(quotient >= convert<V>(0x1p22f)))) return map_lanes_cold<V>(x, y, scalar_op);
        V rem = fma(convert<V>(0.0f) - vtrunc(quotient), divisor, abs_x);
        rem = select(to_mask(rem < convert<V>(0.0f)), rem + divisor, rem);
        return copy_sign(select(to_mask(abs_x < divisor), abs_x, rem), x);  // also right where y is infinite
    }
}
// Mask of lanes whose remainder and divisor differ in sign: floor division is one less than truncated division.
template <typename V> static inline auto needs_floor_correction(V rem, V y) {
    return to_mask(rem != convert<V>(0)) & (to_mask(rem < convert<V>(0)) ^ to_mask(y < convert<V>(0)));
}
template <typename V> static inline V vremainder(V x, V y) {
    const V rem = vfmod(x, y);
    return select(needs_floor_correction(rem, y), rem + y, rem);
}
// Floor division, with the same operations as torch's.
template <typename V> static inline V vfloor_div(V x, V y) {
    const V zero = convert<V>(0), quotient = x / y, rem = vfmod(x, y), quotient_less_rem = (x - rem) / y;
    const V floored = select(needs_floor_correction(rem, y), quotient_less_rem - convert<V>(1), quotient_less_rem);
    const V rounded = vfloor(floored);
    const V result = select(to_mask(floored - rounded > convert<V>(0.5)), rounded + convert<V>(1), rounded);
    return select(to_mask(y == zero), quotient, select(to_mask(floored == zero), copy_sign(zero, quotient), result));
}
