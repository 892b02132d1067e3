// One thread per output adds the products of its filter and all elements before it.
//
// Problem: long_convolution
// Device: cuda
//
// kw: entry  long_convolution
// kw: dims   x: float32[B, C, L]; w: float32[C, L]
// kw: out    out: float32[B, C, L]
// kw: grid   cdiv(L, 128), C, B
// kw: block  128
// kw: args   x, w, out, C, L

extern "C" __global__ void __launch_bounds__(128)
long_convolution(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ out, int C, int L) {
    const int at = blockIdx.x * 128 + threadIdx.x;
    if (at >= L) return;
    const long long row = ((long long)blockIdx.z * C + blockIdx.y) * L;
    const float* filter = w + (long long)blockIdx.y * L;
    float sum = 0.0f;
    for (int k = 0; k <= at; ++k) sum += filter[k] * x[row + at - k];
    out[row + at] = sum;
}
