// Processes four numbers at a time if all three arrays are aligned, else and in the tail one at a time.
//
// Problem: scale_add
// Device: cuda
//
// kw: entry  scale_add_four
// kw: dims   x: float32[M, N]; y: float32[M, N]
// kw: out    out: float32[M, N]
// kw: grid   cdiv(M * N, 1024)
// kw: block  256
// kw: args   x, y, out, M * N

__device__ float one(float x, float y) {
    const float half = (x + y) * 0.5f;
    return half < 0.0f ? 0.0f : half;
}

extern "C" __global__ void __launch_bounds__(256)
scale_add_four(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ out, int count) {
    const int first = (blockIdx.x * 256 + threadIdx.x) * 4;
    const unsigned long long addresses = (unsigned long long)x | (unsigned long long)y | (unsigned long long)out;
    if (addresses % 16 == 0 && first + 4 <= count) {
        const float4 u = *(const float4*)(x + first), v = *(const float4*)(y + first);
        *(float4*)(out + first) = make_float4(one(u.x, v.x), one(u.y, v.y), one(u.z, v.z), one(u.w, v.w));
    } else {
        for (int i = first; i < first + 4 && i < count; ++i) out[i] = one(x[i], y[i]);
    }
}
