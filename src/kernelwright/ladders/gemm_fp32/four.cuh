// Rows in fours.
#pragma once

// Whether every row of so many floats begins at a multiple of sixteen bytes.
__device__ __forceinline__ bool even(const float* at, int row) {
    return row % 4 == 0 && reinterpret_cast<unsigned long long>(at) % 16 == 0;
}

// Four neighbours of which `left` are there; as one load where rows begin at multiples of sixteen bytes.
__device__ __forceinline__ float4 four(const float* at, int left, bool wide) {
    if (wide && left >= 4) return *reinterpret_cast<const float4*>(at);
    return make_float4(left > 0 ? at[0] : 0.0f, left > 1 ? at[1] : 0.0f, left > 2 ? at[2] : 0.0f,
                       left > 3 ? at[3] : 0.0f);
}
