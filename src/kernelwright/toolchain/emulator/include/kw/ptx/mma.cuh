// kw/ptx/mma.cuh on the CPU: lanes exchange their fragments, and each computes its four elements in FP32.

namespace kw {

// a(row, k) and b(k, column) of the warp's fragments, whose registers hold `per_register` consecutive k each.
template <class Decode>
inline void mma_m16n8(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], int per_register, int line,
                      Decode decode) {
    const unsigned sent[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    unsigned warp[32][6];
    kw_exchange(line, sent, 6, warp[0]);
    const int lane = kw_lane(), row = lane / 4, column = lane % 4 * 2, half_k = 4 * per_register;
    for (int k = 0; k < 2 * half_k; ++k) {
        const int lane_k = k % half_k / per_register, half = k / half_k, part = k % per_register;
        const float low = decode(warp[row * 4 + lane_k][2 * half], part);
        const float high = decode(warp[row * 4 + lane_k][2 * half + 1], part);
        const float left = decode(warp[column * 4 + lane_k][4 + half], part);
        const float right = decode(warp[column * 4 + 4 + lane_k][4 + half], part);
        d[0] += low * left;
        d[1] += low * right;
        d[2] += high * left;
        d[3] += high * right;
    }
}

inline void mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                             int line = __builtin_LINE()) {
    mma_m16n8(d, a, b, 2, line, [](unsigned two, int part) {
        return static_cast<float>(bits<_Float16>(static_cast<unsigned short>(two >> 16 * part)));
    });
}

inline void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                              int line = __builtin_LINE()) {
    mma_m16n8(d, a, b, 2, line, [](unsigned two, int part) { return bits<float>(two >> 16 * part << 16); });
}

inline void mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                             int line = __builtin_LINE()) {
    mma_m16n8(d, a, b, 1, line, [](unsigned one, int) { return bits<float>(one & 0xffffe000u); });
}

}  // namespace kw
