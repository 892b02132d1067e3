// ---- memory: elements as they are stored, values as they are computed

struct BFloat16 { uint16_t bits; };
struct Bool { uint8_t byte; };
template <typename T> struct Computed { using type = T; };
template <> struct Computed<BFloat16> { using type = float; };
template <> struct Computed<_Float16> { using type = float; };
template <> struct Computed<Bool> { using type = int32_t; };
template <> struct Computed<int16_t> { using type = int32_t; };
template <> struct Computed<int8_t> { using type = int32_t; };
template <> struct Computed<uint8_t> { using type = int32_t; };

// The elements from p on, one a lane; or one.
template <typename V, typename T> static inline auto load(const T* p) {
    using R = Like<V, typename Computed<T>::type>;
    if constexpr (is_wide<V>) {
        if constexpr (std::is_same_v<T, BFloat16>) {
            Like<V, uint16_t> raw;
            __builtin_memcpy(&raw, p, sizeof(raw));
            return bits<R>(__builtin_convertvector(raw, Like<V, uint32_t>) << 16);
        } else if constexpr (std::is_same_v<T, Bool>) {
            Like<V, uint8_t> raw;
            __builtin_memcpy(&raw, p, sizeof(raw));
            return as<R>(as<R>(raw) != 0);
#if defined(__F16C__)
        } else if constexpr (std::is_same_v<T, _Float16> && sizeof(R) >= 32) {  // which GCC 12 takes lane by lane
            Like<V, uint16_t> raw;
            __builtin_memcpy(&raw, p, sizeof(raw));
            R wide;
            asm("vcvtph2ps %1, %0" : "=v"(wide) : "v"(raw));
            return wide;
#endif
        } else {
            Like<V, T> raw;
            __builtin_memcpy(&raw, p, sizeof(raw));
            return as<R>(raw);
        }
    } else if constexpr (std::is_same_v<T, BFloat16>) return bits<float>(static_cast<uint32_t>(p->bits) << 16);
    else if constexpr (std::is_same_v<T, Bool>) return truth(p->byte != 0);
    else return static_cast<R>(*p);
}
constexpr int64_t AHEAD_BYTES = 2048;
// The same along a walk, which asks for what it comes to: with much to compute for each element a processor does not look
// so far.
template <typename V, typename T> static inline auto load_ahead(const T* p) {
    if constexpr (is_wide<V>) __builtin_prefetch(reinterpret_cast<const char*>(p) + AHEAD_BYTES);
    return load<V>(p);
}
// Elements `stride` apart.
template <typename V, typename T> static inline auto gather(const T* p, int64_t stride) {
    using R = Like<V, typename Computed<T>::type>;
    if constexpr (!is_wide<V>) return load<V>(p);
    else {
        R found;
        for (int lane = 0; lane < lanes<V>; ++lane) found[lane] = load<float>(p + lane * stride);
        return found;
    }
}
static inline uint16_t rounded(float x) {
    const uint32_t raw = bits<uint32_t>(x);
    return x != x ? 0x7FC0 : (raw + 0x7FFF + ((raw >> 16) & 1)) >> 16;
}
template <typename V, typename T> static inline void store(T* p, V x) {
    if constexpr (is_wide<V>) {
        if constexpr (std::is_same_v<T, BFloat16>) {
            const Like<V, uint32_t> raw = bits<Like<V, uint32_t>>(x);
            const Like<V, uint32_t> up = (raw + 0x7FFF + ((raw >> 16) & 1)) >> 16;
            const auto result = __builtin_convertvector((x != x) ? (up * 0 + 0x7FC0) : up, Like<V, uint16_t>);
            __builtin_memcpy(p, &result, sizeof(result));
        } else if constexpr (std::is_same_v<T, Bool>) {
            const auto result = as<Like<V, uint8_t>>(x & 1);
            __builtin_memcpy(p, &result, sizeof(result));
        } else {
            const auto result = as<Like<V, T>>(x);
            __builtin_memcpy(p, &result, sizeof(result));
        }
    } else if constexpr (std::is_same_v<T, BFloat16>) p->bits = rounded(x);
    else if constexpr (std::is_same_v<T, Bool>) p->byte = x & 1;
    else *p = static_cast<T>(x);
}
// Past the caches, for results that are larger than they are: no line is read only to be written over. What comes
// after the loop waits for it, since the end of a parallel loop is a locked operation.
template <typename V> static inline void stream(float* p, V x) {
#if defined(__AVX__)
    if constexpr (std::is_same_v<V, F>) {
        if (reinterpret_cast<uintptr_t>(p) % sizeof(F) == 0) {
            asm volatile("vmovntps %1, %0" : "=m"(*reinterpret_cast<F*>(p)) : "v"(x));
            return;
        }
    }
#endif
    store(p, x);
}
template <typename V, typename T> static inline void scatter(T* p, V x, int64_t stride) {
    if constexpr (!is_wide<V>) store(p, x);
    else for (int lane = 0; lane < lanes<V>; ++lane) store(p + lane * stride, x[lane]);
}
// Whole numbers from `first` on, one a lane.
template <typename V> static inline V counted(int64_t first) {
    V x = as<V>(first);
    if constexpr (is_wide<V>) for (int lane = 0; lane < lanes<V>; ++lane) x[lane] += lane;
    return x;
}
