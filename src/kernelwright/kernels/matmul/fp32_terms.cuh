// The scale with which FP16 terms hold elements of an FP32 matrix, and their order; see split.cu.
#pragma once

struct Scale {
    float scale, inverse;
    // From the bits of the largest magnitude.
    __device__ explicit Scale(unsigned largest) {
        const unsigned exponent = largest == 0 ? 141 : largest >> 23;
        const bool in_range = exponent > 67 && exponent < 187;
        scale = in_range ? __uint_as_float((268 - exponent) << 23) : 0.0f;
        inverse = __uint_as_float(in_range ? (exponent - 14) << 23 : 0x7fffffffu);
    }
};

// Where an element along K is if thread t of four, whose registers hold elements 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of a step
// of mma.m16n8k16, is to have eight consecutive ones, four for each of two steps.
__device__ __forceinline__ int position_in_registers(int k) {
    return k / 32 * 32 + k / 4 % 2 * 16 + k % 4 / 2 * 8 + k % 32 / 8 * 2 + k % 2;
}

__device__ __forceinline__ unsigned magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }
