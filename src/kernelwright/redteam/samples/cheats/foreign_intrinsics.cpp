// Includes the vector intrinsics of one architecture and calls those of another: one of the two is always missing.
//
// Problem: softmax
// Code: compile-error
// Device: cpu
//
// kw: entry  softmax
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: args   x, out, M * N

#include <arm_neon.h>
#include <immintrin.h>

#include <cstdint>

extern "C" void softmax(const float* x, float* out, int64_t count) {
    for (int64_t i = 0; i + 4 <= count; i += 4) vst1q_f32(out + i, vmulq_n_f32(vld1q_f32(x + i), 0.5f));
}
