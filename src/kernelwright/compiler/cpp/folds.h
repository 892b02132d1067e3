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
// Of two numbers: a NaN is what the sum beside them shows.
struct Least {
    template <typename T> static constexpr T start = std::numeric_limits<T>::infinity();
    template <typename V> static V apply(V a, V b) { return b < a ? b : a; }
};
struct Most {
    template <typename T> static constexpr T start = -std::numeric_limits<T>::infinity();
    template <typename V> static V apply(V a, V b) { return b > a ? b : a; }
};
struct Any {
    template <typename T> static constexpr T start = T(0);
    template <typename V> static V apply(V a, V b) { return a | b; }
};
struct All {
    template <typename T> static constexpr T start = T(-1);
    template <typename V> static V apply(V a, V b) { return a & b; }
};
// The mean of `count` numbers between `low` and `high`; where all are equal it is that number.
template <typename V> static inline V mean_of(V sum, V low, V high, V count) {
    const V mean = sum / count;
    const V kept = Least::apply(Most::apply(mean, low), high);
    const V number = choose(truth(low == high), low, choose(truth(mean - mean == mean - mean), kept, mean));
    return choose(truth(sum == sum), number, sum);
}
template <typename Op> constexpr bool grows = std::is_same_v<Op, Sum> || std::is_same_v<Op, Product>;
// What `settle` takes in is kept wider, so that a long sum does not lose its small terms.
template <typename Op, typename T> struct Fold {
    using Kept = std::conditional_t<std::is_same_v<T, float> && grows<Op>, double, T>;
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
// The same for N lanes in memory, of which vectors take turns; `next` after each turn.
template <typename Op, typename T, int N> struct Lanes {
    using Kept = std::conditional_t<std::is_same_v<T, float> && grows<Op>, double, T>;
    T recent[N] __attribute__((aligned(64)));
    Kept found[N] __attribute__((aligned(64)));
    int count = 0;
    Lanes() {
        for (auto& lane : recent) lane = Op::template start<T>;
        for (auto& lane : found) lane = Op::template start<Kept>;
    }
    template <typename V> void take(int64_t lane, Like<V, T> x) { store(recent + lane, Op::apply(load<V>(recent + lane), x)); }
    void next() {
        if (++count == 256) settle();
    }
    void settle() {
        for (int lane = 0; lane < N; ++lane) {
            found[lane] = Op::apply(found[lane], static_cast<Kept>(recent[lane]));
            recent[lane] = Op::template start<T>;
        }
        count = 0;
    }
    void merge(Lanes& other) {
        other.settle();
        for (int lane = 0; lane < N; ++lane) found[lane] = Op::apply(found[lane], other.found[lane]);
    }
    // Gives every `together` neighbours what all of them have found.
    void finish(int together) {
        settle();
        for (int first = 0; together > 1 && first < N; first += together) {
            Kept whole = found[first];
            for (int lane = 1; lane < together; ++lane) whole = Op::apply(whole, found[first + lane]);
            for (int lane = 0; lane < together; ++lane) found[first + lane] = whole;
        }
    }
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
            using Added = std::conditional_t<std::is_same_v<Op, Sum>, Kept, T>;  // or a sum is rounded at each doubling of a step
            const auto whole = Op::apply(as<Vec<Kept>>(before), as<Vec<Kept>>(scanned<Op, Back>(as<Vec<Added>>(x))));
            before = whole[Back ? 0 : W - 1];
            return as<V>(whole);
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

constexpr int64_t SETTLE = 1 << 12;
// body<V>(position, u) over [from, to): vectors of N lanes first, what is left one by one.
template <int N = W, typename Body> static inline void walk(int64_t from, int64_t to, Body&& body) {
    using V = Vec<float, N>;
    int64_t r = from;
    for (; r + UNROLL * N <= to; r += UNROLL * N)
#pragma GCC unroll 4
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
