// Sums a row in FP16, rounding after every number.
//
// Problem: row_sum
// Code: inaccurate
// Device: cuda
//
// kw: entry  row_sum
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M]
// kw: grid   M
// kw: block  256
// kw: args   x, out, N

__device__ float rounded(float value) {
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

extern "C" __global__ void row_sum(const float* __restrict__ x, float* __restrict__ out, int N) {
    __shared__ float board[256];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < N; i += 256) sum = rounded(sum + rounded(x[(long long)blockIdx.x * N + i]));
    board[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 128; step; step /= 2) {
        if (threadIdx.x < step) board[threadIdx.x] = rounded(board[threadIdx.x] + board[threadIdx.x + step]);
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = board[0];
}
