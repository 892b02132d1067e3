// ---- reductions: kUnroll independent accumulators hide the latency of an addition

constexpr int kUnroll = 4;
struct Sum {
    template <typename T> static constexpr T identity = T(0);
    template <typename V> static V apply(V a, V b) { return a + b; }
};
struct Product {
    template <typename T> static constexpr T identity = T(1);
    template <typename V> static V apply(V a, V b) { return a * b; }
};
struct Max {
    template <typename T> static constexpr T identity =
        std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
    template <typename V> static V apply(V a, V b) { return vmax(a, b); }
    template <typename V> static auto beats(V x, V best) { return ~to_mask(x <= best) & to_mask(best == best); }
};
struct Min {
    template <typename T> static constexpr T identity =
        std::is_floating_point_v<T> ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
    template <typename V> static V apply(V a, V b) { return vmin(a, b); }
    template <typename V> static auto beats(V x, V best) { return ~to_mask(x >= best) & to_mask(best == best); }
};
// NaN is not propagated: the sum in the same mean carries it.
struct MinNum {
    template <typename T> static constexpr T identity = std::numeric_limits<T>::infinity();
    template <typename V> static V apply(V a, V b) { return b < a ? b : a; }
};
struct MaxNum {
    template <typename T> static constexpr T identity = -std::numeric_limits<T>::infinity();
    template <typename V> static V apply(V a, V b) { return b > a ? b : a; }
};
struct Any {
    template <typename T> static constexpr T identity = T(0);
    template <typename V> static V apply(V a, V b) { return a | b; }
};
struct All {
    template <typename T> static constexpr T identity = T(-1);
    template <typename V> static V apply(V a, V b) { return a & b; }
};
// The mean of `count` numbers in [min_x, max_x]; exact where all are equal.
template <typename V> static inline V clamped_mean(V sum, V min_x, V max_x, V count) {
    const V mean = sum / count;
    const V clamped = MinNum::apply(MaxNum::apply(mean, min_x), max_x);
    const V result = select(to_mask(min_x == max_x), min_x, select(to_mask(mean - mean == mean - mean), clamped, mean));
    return select(to_mask(sum == sum), result, sum);
}
template <typename Op> constexpr bool needs_wide_accumulator = std::is_same_v<Op, Sum> || std::is_same_v<Op, Product>;
// `flush` accumulates sums and products of floats in FP64, so that a long sum does not lose small terms.
template <typename Op, typename T> struct RowAccumulator {
    using Acc = std::conditional_t<std::is_same_v<T, float> && needs_wide_accumulator<Op>, double, T>;
    Vec<T> vectors[kUnroll];
    T tail;
    Vec<Acc> flushed = convert<Vec<Acc>>(Op::template identity<Acc>);
    RowAccumulator() { clear(); }
    void clear() {
        for (auto& vector : vectors) vector = convert<Vec<T>>(Op::template identity<T>);
        tail = Op::template identity<T>;
    }
    template <typename V> void update(Rebind<V, T> x, int unroll) {
        if constexpr (is_vector<V>) vectors[unroll] = Op::apply(vectors[unroll], x);
        else tail = Op::apply(tail, x);
    }
    void flush() {
        for (const auto& vector : vectors) flushed = Op::apply(flushed, convert<Vec<Acc>>(vector));
        flushed[0] = Op::apply(Acc(flushed[0]), static_cast<Acc>(tail));
        clear();
    }
    void merge(RowAccumulator& other) {
        other.flush();
        flushed = Op::apply(flushed, other.flushed);
    }
    T value() {
        flush();
        Acc total = flushed[0];
        for (int lane = 1; lane < kLanes; ++lane) total = Op::apply(total, Acc(flushed[lane]));
        return static_cast<T>(total);
    }
};
// The same where each lane is a row.
template <typename Op, typename V> struct LaneAccumulator {
    using T = typename Element<V>::type;
    V recent = convert<V>(Op::template identity<T>), flushed = convert<V>(Op::template identity<T>);
    int count = 0;
    void update(V x) {
        recent = Op::apply(recent, x);
        if (++count == 256) {
            flushed = Op::apply(flushed, recent);
            recent = convert<V>(Op::template identity<T>);
            count = 0;
        }
    }
    V value() const { return Op::apply(flushed, recent); }
};
// The same for N lanes in memory, updated vector by vector; call `next` after each element of the row.
template <typename Op, typename T, int N> struct LaneArrayAccumulator {
    using Acc = std::conditional_t<std::is_same_v<T, float> && needs_wide_accumulator<Op>, double, T>;
    T recent[N] __attribute__((aligned(64)));
    Acc totals[N] __attribute__((aligned(64)));
    int count = 0;
    LaneArrayAccumulator() {
        for (auto& lane : recent) lane = Op::template identity<T>;
        for (auto& lane : totals) lane = Op::template identity<Acc>;
    }
    template <typename V> void update(int64_t lane, Rebind<V, T> x) {
        store(recent + lane, Op::apply(load<V>(recent + lane), x));
    }
    void next() {
        if (++count == 256) flush();
    }
    void flush() {
        for (int lane = 0; lane < N; ++lane) {
            totals[lane] = Op::apply(totals[lane], static_cast<Acc>(recent[lane]));
            recent[lane] = Op::template identity<T>;
        }
        count = 0;
    }
    void merge(LaneArrayAccumulator& other) {
        other.flush();
        for (int lane = 0; lane < N; ++lane) totals[lane] = Op::apply(totals[lane], other.totals[lane]);
    }
    // Reduces each group of `lanes_per_row` adjacent lanes and writes the result to all of them.
    void finish(int lanes_per_row) {
        flush();
        for (int first = 0; lanes_per_row > 1 && first < N; first += lanes_per_row) {
            Acc total = totals[first];
            for (int lane = 1; lane < lanes_per_row; ++lane) total = Op::apply(total, totals[first + lane]);
            for (int lane = 0; lane < lanes_per_row; ++lane) totals[first + lane] = total;
        }
    }
};
// First index of the largest or smallest value per lane; NaN beats all numbers, as in torch.
template <typename Op, typename V> struct LaneArgAccumulator {
    using Index = Rebind<V, int32_t>;
    V best = convert<V>(Op::template identity<typename Element<V>::type>);
    Index index = convert<Index>(std::numeric_limits<int32_t>::max());
    void update(V x, Index position) {
        const auto better = Op::beats(x, best);
        best = select(better, x, best);
        index = select(better, position, index);
    }
    void update(V x, int64_t position) { update(x, convert<Index>(static_cast<int32_t>(position))); }
    // If no value beat the identity, all are equal to it and the first index is 0.
    auto value() const {
        const auto is_unset = to_mask(index == std::numeric_limits<int32_t>::max());
        return convert<Rebind<V, int64_t>>(select(is_unset, convert<Index>(0), index));
    }
};
template <int... lane> static inline VecI32 iota(std::integer_sequence<int, lane...>) { return VecI32{lane...}; }
template <typename Op, typename T> struct RowArgAccumulator {
    LaneArgAccumulator<Op, Vec<T>> vectors[kUnroll];
    LaneArgAccumulator<Op, T> tail;
    template <typename V> void update(Rebind<V, T> x, int64_t position, int unroll) {
        if constexpr (is_vector<V>) {
            const VecI32 lanes = iota(std::make_integer_sequence<int, kLanes>());
            vectors[unroll].update(x, lanes + static_cast<int32_t>(position));
        } else tail.update(x, position);
    }
    void merge(T x, int32_t position) {
        const bool is_tie = x == tail.best || (x != x && tail.best != tail.best);
        if (Op::beats(x, tail.best) || (is_tie && position < tail.index)) tail.best = x, tail.index = position;
    }
    void merge(const RowArgAccumulator& other) {
        for (const auto& vector : other.vectors)
            for (int lane = 0; lane < kLanes; ++lane) merge(vector.best[lane], vector.index[lane]);
        merge(other.tail.best, other.tail.index);
    }
    void flush() {}
    int64_t value() {
        merge(*this);
        return tail.value();
    }
};

// ---- scans: the carry of floats is FP64

// Shifts lanes up by `offset`, or down if Reverse; vacated lanes are `fill`.
template <bool Reverse, int offset, typename V, int... lane>
static inline V shift_lanes(V x, V fill, std::integer_sequence<int, lane...>) {
    return __builtin_shufflevector(x, fill, (Reverse ? (lane + offset < kLanes ? lane + offset : kLanes)
                                                     : (lane < offset ? kLanes : lane - offset))...);
}
template <typename Op, bool Reverse, int offset = 1, typename V> static inline V inclusive_scan(V x) {
    if constexpr (offset >= kLanes) return x;
    else {
        const V fill = convert<V>(Op::template identity<typename Element<V>::type>);
        const V shifted = shift_lanes<Reverse, offset>(x, fill, std::make_integer_sequence<int, kLanes>());
        return inclusive_scan<Op, Reverse, 2 * offset>(Op::apply(shifted, x));
    }
}
// Scan along the row. Products go lane by lane: a partial product may overflow a float where the total does not.
template <typename Op, typename T, bool Reverse = false> struct RowScan {
    using Acc = std::conditional_t<std::is_same_v<T, float>, double, T>;
    Acc carry = Op::template identity<Acc>;
    template <typename V> V update(V x) {
        if constexpr (!is_vector<V>) return static_cast<T>(carry = Op::apply(carry, static_cast<Acc>(x)));
        else if constexpr (std::is_floating_point_v<T> && !std::is_same_v<Op, Product>) {
            using ScanType = std::conditional_t<std::is_same_v<Op, Sum>, Acc, T>;  // FP64: a sum is rounded only once
            const auto scanned = inclusive_scan<Op, Reverse>(convert<Vec<ScanType>>(x));
            const auto total = Op::apply(convert<Vec<Acc>>(carry), convert<Vec<Acc>>(scanned));
            carry = total[Reverse ? 0 : kLanes - 1];
            return convert<V>(total);
        } else {
            for (int i = 0; i < kLanes; ++i) {
                const int lane = Reverse ? kLanes - 1 - i : i;
                x[lane] = static_cast<T>(carry = Op::apply(carry, static_cast<Acc>(x[lane])));
            }
            return x;
        }
    }
};
// Scan where each lane is a row.
template <typename Op, typename V> struct LaneScan {
    using T = typename Element<V>::type;
    using Acc = Rebind<V, std::conditional_t<std::is_same_v<T, float>, double, T>>;
    Acc carry = convert<Acc>(Op::template identity<typename Element<Acc>::type>);
    V update(V x) { return convert<V>(carry = Op::apply(carry, convert<Acc>(x))); }
};

// ---- loops along a row

constexpr int64_t kFlushInterval = 1 << 12;
// Calls body<V>(position, unroll) over [from, to): vectors of N lanes first, then single elements.
template <int N = kLanes, typename Body> static inline void for_each_vector(int64_t from, int64_t to, Body&& body) {
    using V = Vec<float, N>;
    int64_t r = from;
    for (; r + kUnroll * N <= to; r += kUnroll * N)
#pragma GCC unroll 4
        for (int unroll = 0; unroll < kUnroll; ++unroll) body.template operator()<V>(r + unroll * N, unroll);
    for (; r + N <= to; r += N) body.template operator()<V>(r, 0);
    for (; r < to; ++r) body.template operator()<float>(r, 0);
}
template <typename Body, typename... Accumulators>
static inline void for_each_vector(int64_t from, int64_t to, Body&& body, Accumulators&... accumulators) {
    for (int64_t begin = from; begin < to; begin += kFlushInterval) {
        for_each_vector(begin, begin + kFlushInterval < to ? begin + kFlushInterval : to, body);
        if (to - from > kFlushInterval) (accumulators.flush(), ...);
    }
}
// The same with half as many lanes, and half of them again, for what is left: rows that are short and costly.
template <int N = kLanes, typename Body>
static inline void for_each_vector_halving(int64_t from, int64_t to, Body&& body) {
    int64_t r = from;
    for (; r + N <= to; r += N) body.template operator()<Vec<float, N>>(r, 0);
    if constexpr (N > 4) for_each_vector_halving<N / 2>(r, to, body);
    else for (; r < to; ++r) body.template operator()<float>(r, 0);
}
// The same from the end to the start.
template <typename Body, typename... Accumulators>
static inline void for_each_vector_reverse(int64_t from, int64_t to, Body&& body, Accumulators&... accumulators) {
    const int64_t vectors_end = from + (to - from) / kLanes * kLanes;
    for (int64_t r = to - 1; r >= vectors_end; --r) body.template operator()<float>(r, 0);
    for (int64_t r = vectors_end - kLanes; r >= from; r -= kLanes) {
        body.template operator()<VecF32>(r, 0);
        if ((r - from) % kFlushInterval == 0) (accumulators.flush(), ...);
    }
}
