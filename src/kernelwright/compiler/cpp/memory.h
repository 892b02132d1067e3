// ---- memory: storage types in memory, compute types in registers

struct BFloat16 { uint16_t bits; };
struct Bool { uint8_t byte; };
template <typename T> struct ComputeType { using type = T; };
template <> struct ComputeType<BFloat16> { using type = float; };
template <> struct ComputeType<_Float16> { using type = float; };
template <> struct ComputeType<Bool> { using type = int32_t; };
template <> struct ComputeType<int16_t> { using type = int32_t; };
template <> struct ComputeType<int8_t> { using type = int32_t; };
template <> struct ComputeType<uint8_t> { using type = int32_t; };

// Loads contiguous elements from p, one per lane.
template <typename V, typename T> static inline auto load(const T* p) {
    using R = Rebind<V, typename ComputeType<T>::type>;
    if constexpr (is_vector<V>) {
        if constexpr (std::is_same_v<T, BFloat16>) {
            Rebind<V, uint16_t> raw_bits;
            __builtin_memcpy(&raw_bits, p, sizeof(raw_bits));
            return bit_cast<R>(__builtin_convertvector(raw_bits, Rebind<V, uint32_t>) << 16);
        } else if constexpr (std::is_same_v<T, Bool>) {
            Rebind<V, uint8_t> raw_bits;
            __builtin_memcpy(&raw_bits, p, sizeof(raw_bits));
            return convert<R>(convert<R>(raw_bits) != 0);
#if defined(__F16C__)
        } else if constexpr (std::is_same_v<T, _Float16> && sizeof(R) >= 32) {  // GCC 12 converts these lane by lane
            Rebind<V, uint16_t> raw_bits;
            __builtin_memcpy(&raw_bits, p, sizeof(raw_bits));
            R converted;
            asm("vcvtph2ps %1, %0" : "=v"(converted) : "v"(raw_bits));
            return converted;
#endif
        } else {
            Rebind<V, T> raw_bits;
            __builtin_memcpy(&raw_bits, p, sizeof(raw_bits));
            return convert<R>(raw_bits);
        }
    } else if constexpr (std::is_same_v<T, BFloat16>) return bit_cast<float>(static_cast<uint32_t>(p->bits) << 16);
    else if constexpr (std::is_same_v<T, Bool>) return to_mask(p->byte != 0);
    else return static_cast<R>(*p);
}
constexpr int64_t kPrefetchBytes = 2048;
// The same with a software prefetch, for loops over contiguous memory: with much computation per element the hardware
// prefetcher does not run far enough ahead.
template <typename V, typename T> static inline auto load_prefetch(const T* p) {
    if constexpr (is_vector<V>) __builtin_prefetch(reinterpret_cast<const char*>(p) + kPrefetchBytes);
    return load<V>(p);
}
// Every second lane of two vectors of which the second starts at the last lane of the first.
template <typename V, int... lane> static inline V even_lanes(V a, V b, std::integer_sequence<int, lane...>) {
    return __builtin_shufflevector(a, b, (2 * lane < num_lanes<V> ? 2 * lane : 2 * lane + 1)...);
}
// Loads elements `stride` apart; nothing after the last one is read.
template <typename V, typename T> static inline auto gather(const T* p, int64_t stride) {
    using R = Rebind<V, typename ComputeType<T>::type>;
    if constexpr (!is_vector<V>) return load<V>(p);
    else if (stride == 2 && num_lanes<V> > 1)
        return even_lanes<R>(
            load<V>(p), load<V>(p + num_lanes<V> - 1), std::make_integer_sequence<int, num_lanes<V>>());
    else {
        R result;
        for (int lane = 0; lane < num_lanes<V>; ++lane) result[lane] = load<float>(p + lane * stride);
        return result;
    }
}
// The first lane whose index, `step` apart from lane to lane, is not negative.
static inline int64_t first_lane(int64_t index, int64_t step) { return index >= 0 ? 0 : (step - 1 - index) / step; }
static inline int64_t max_lane(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t min_lane(int64_t a, int64_t b) { return a < b ? a : b; }
// Loads the lanes from `begin` to before `end`, `stride` apart; other lanes are `fill`.
template <typename V, typename T, typename F>
static inline auto load_lanes(const T* p, int64_t stride, int64_t begin, int64_t end, F fill) {
    using R = Rebind<V, typename ComputeType<T>::type>;
    if constexpr (!is_vector<V>) return begin <= 0 && end > 0 ? load<V>(p) : static_cast<R>(fill);
    else {
        if (begin <= 0 && end >= num_lanes<V>) return stride == 1 ? load<V>(p) : gather<V>(p, stride);
        R result = convert<R>(fill);
        for (int64_t lane = begin; lane < num_lanes<V> && lane < end; ++lane)
            result[lane] = load<float>(p + lane * stride);
        return result;
    }
}
static inline uint16_t to_bfloat16(float x) {
    const uint32_t raw_bits = bit_cast<uint32_t>(x);
    return x != x ? 0x7FC0 : (raw_bits + 0x7FFF + ((raw_bits >> 16) & 1)) >> 16;
}
template <typename V, typename T> static inline void store(T* p, V x) {
    if constexpr (is_vector<V>) {
        if constexpr (std::is_same_v<T, BFloat16>) {
            const Rebind<V, uint32_t> raw_bits = bit_cast<Rebind<V, uint32_t>>(x);
            const Rebind<V, uint32_t> rounded_bits = (raw_bits + 0x7FFF + ((raw_bits >> 16) & 1)) >> 16;
            const auto result =
                __builtin_convertvector((x != x) ? (rounded_bits * 0 + 0x7FC0) : rounded_bits, Rebind<V, uint16_t>);
            __builtin_memcpy(p, &result, sizeof(result));
        } else if constexpr (std::is_same_v<T, Bool>) {
            const auto result = convert<Rebind<V, uint8_t>>(x & 1);
            __builtin_memcpy(p, &result, sizeof(result));
        } else {
            const auto result = convert<Rebind<V, T>>(x);
            __builtin_memcpy(p, &result, sizeof(result));
        }
    } else if constexpr (std::is_same_v<T, BFloat16>) p->bits = to_bfloat16(x);
    else if constexpr (std::is_same_v<T, Bool>) p->byte = x & 1;
    else *p = static_cast<T>(x);
}
// Non-temporal store, for results larger than the caches: no line is read only to be overwritten. No fence is needed:
// the end of a parallel loop is a locked operation, which orders it.
template <typename V> static inline void store_nontemporal(float* p, V x) {
#if defined(__AVX__)
    if constexpr (std::is_same_v<V, VecF32>) {
        if (reinterpret_cast<uintptr_t>(p) % sizeof(VecF32) == 0) {
            asm volatile("vmovntps %1, %0" : "=m"(*reinterpret_cast<VecF32*>(p)) : "v"(x));
            return;
        }
    }
#endif
    store(p, x);
}
template <typename V, typename T> static inline void scatter(T* p, V x, int64_t stride) {
    if constexpr (!is_vector<V>) store(p, x);
    else for (int lane = 0; lane < num_lanes<V>; ++lane) store(p + lane * stride, x[lane]);
}
// first, first + 1, ..., one per lane.
template <typename V> static inline V iota_from(int64_t first) {
    V x = convert<V>(first);
    if constexpr (is_vector<V>) for (int lane = 0; lane < num_lanes<V>; ++lane) x[lane] += lane;
    return x;
}
