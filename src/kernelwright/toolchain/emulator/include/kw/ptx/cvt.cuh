// kw/ptx/cvt.cuh on the CPU.

namespace kw {

using f32 = float;

struct bf16 {
    unsigned short bits;
};
struct f16 {
    unsigned short bits;
};
struct tf32 {};
struct e4m3 {
    unsigned char bits;
};
struct e5m2 {
    unsigned char bits;
};

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
inline float to_float(f16 x) { return static_cast<float>(bits<_Float16>(x.bits)); }
inline float to_float(e5m2 x) { return to_float(f16{static_cast<unsigned short>(x.bits << 8)}); }
inline float to_float(e4m3 x) {
    const int exponent = x.bits >> 3 & 15, mantissa = x.bits & 7;
    const float magnitude = (x.bits & 0x7f) == 0x7f ? __uint_as_float(0x7fffffffu)
                            : exponent              ? ldexpf(8 + mantissa, exponent - 10)
                                                    : ldexpf(mantissa, -9);
    return x.bits >> 7 ? -magnitude : magnitude;
}

template <typename T>
inline T from_float(float x);
template <>
inline float from_float<float>(float x) {
    return x;
}
template <>
inline bf16 from_float<bf16>(float x) {
    const unsigned word = __float_as_uint(x), rounded = word + 0x7fff + (word >> 16 & 1);
    return {static_cast<unsigned short>(x != x ? 0x7fff : rounded >> 16)};
}
template <>
inline f16 from_float<f16>(float x) {
    return {bits<unsigned short>(static_cast<_Float16>(x))};
}

template <typename T>
inline unsigned pack(float low, float high) {
    return from_float<T>(low).bits | static_cast<unsigned>(from_float<T>(high).bits) << 16;
}

template <typename T>
inline float2 unpack(unsigned two) {
    return {to_float(T{static_cast<unsigned short>(two)}), to_float(T{static_cast<unsigned short>(two >> 16)})};
}

}  // namespace kw
