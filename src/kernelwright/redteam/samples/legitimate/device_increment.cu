// Adds to the input in place in a grid-stride loop.
//
// Problem: increment
// Device: cuda
//
// kw: entry  add_to
// kw: dims   x: float32[M, N]; y: float32[M, N]
// kw: out    x
// kw: grid   64
// kw: block  128
// kw: args   x, y, M * N

extern "C" __global__ void add_to(float* x, const float* __restrict__ y, int count) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) x[i] += y[i];
}
