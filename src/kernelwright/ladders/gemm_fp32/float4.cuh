// Guarded float4 loads.
#pragma once

// Whether every row of a matrix with rows of this many floats is 16-byte aligned.
__device__ __forceinline__ bool is_aligned4(const float* ptr, int row_size) {
    return row_size % 4 == 0 && reinterpret_cast<unsigned long long>(ptr) % 16 == 0;
}

// Loads four consecutive elements, of which the first `valid` exist and the others are 0; one 128-bit load if aligned.
__device__ __forceinline__ float4 load_float4(const float* ptr, int valid, bool aligned) {
    if (aligned && valid >= 4) return *reinterpret_cast<const float4*>(ptr);
    return make_float4(valid > 0 ? ptr[0] : 0.0f, valid > 1 ? ptr[1] : 0.0f, valid > 2 ? ptr[2] : 0.0f,
                       valid > 3 ? ptr[3] : 0.0f);
}
