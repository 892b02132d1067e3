// ---- whole numbers, and what division leaves: exact

// x rounded to a whole number by the processor's instruction in a mode, or by the library lane by lane: the compiler
// does not take several at once. A whole number is its own.
template <int mode, typename V, typename One> static inline V to_whole(V x, One one) {
    if constexpr (std::is_integral_v<typename Element<V>::type>) return x;
#if defined(__AVX__)
    else if constexpr (is_wide<V> && std::is_same_v<typename Element<V>::type, float> && sizeof(V) >= 16) {
        V whole;
        if constexpr (sizeof(V) == 64) asm("vrndscaleps %2, %1, %0" : "=v"(whole) : "v"(x), "i"(mode));
        else asm("vroundps %2, %1, %0" : "=x"(whole) : "x"(x), "i"(mode));
        return whole;
    }
#endif
    else return each<V>(x, one);
}
template <typename V> static inline V round_of(V x) {
    return to_whole<8>(x, [](auto v) { return scalar::nearbyint(v); });
}
template <typename V> static inline V floor_of(V x) {
    return to_whole<9>(x, [](auto v) { return scalar::floor(v); });
}
template <typename V> static inline V ceil_of(V x) {
    return to_whole<10>(x, [](auto v) { return scalar::ceil(v); });
}
template <typename V> static inline V trunc_of(V x) {
    return to_whole<11>(x, [](auto v) { return scalar::trunc(v); });
}

// What division rounded to zero leaves, exactly. Quotients below 2^22 are at most one too large, where x / y was rounded
// up to a whole number, and what they leave is a float then too. Larger ones are left to the library.
template <typename V> static inline V fmod_of(V x, V y) {
    constexpr auto one = [](auto a, auto b) { return scalar::fmod(a, b); };
    if constexpr (!has_fma || !is_wide<V> || is_double<V>) return each<V>(x, y, one);
    else {
        const V size = abs_of(x), by = abs_of(y), quotient = abs_of(x / y);
        if (any_lane(truth(quotient >= as<V>(0x1p22f)))) return each_rare<V>(x, y, one);
        V left = fused(as<V>(0.0f) - trunc_of(quotient), by, size);
        left = choose(truth(left < as<V>(0.0f)), left + by, left);
        return with_sign(choose(truth(size < by), size, left), x);  // also where y is infinite
    }
}
// Where what is left has another sign than the divisor: division rounded down goes one further.
template <typename V> static inline auto rounds_further(V left, V y) {
    return truth(left != as<V>(0)) & (truth(left < as<V>(0)) ^ truth(y < as<V>(0)));
}
template <typename V> static inline V remainder_of(V x, V y) {
    const V left = fmod_of(x, y);
    return choose(rounds_further(left, y), left + y, left);
}
// Division rounded down, step by step as torch's.
template <typename V> static inline V floor_divided(V x, V y) {
    const V zero = as<V>(0), quotient = x / y, left = fmod_of(x, y), whole = (x - left) / y;
    const V down = choose(rounds_further(left, y), whole - as<V>(1), whole), near = floor_of(down);
    const V result = choose(truth(down - near > as<V>(0.5)), near + as<V>(1), near);
    return choose(truth(y == zero), quotient, choose(truth(down == zero), with_sign(zero, quotient), result));
}
