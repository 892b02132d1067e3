// Softmax with the hardware exponential of a BF16 number.
//
// Problem: softmax
// Code: inaccurate
// Device: cuda
//
// kw: entry  softmax_row
// kw: dims   x: float32[M, N]
// kw: out    out: float32[M, N]
// kw: grid   M
// kw: block  256
// kw: args   x, out, N

__device__ float rounded(float value) { return __uint_as_float((__float_as_uint(value) + 0x8000u) & 0xffff0000u); }

extern "C" __global__ void softmax_row(const float* __restrict__ x, float* __restrict__ out, int N) {
    __shared__ float board[256];
    const int thread = threadIdx.x;
    const long long begin = (long long)blockIdx.x * N;
    float top = -INFINITY, sum = 0.0f;
    for (int i = thread; i < N; i += 256) top = fmaxf(top, x[begin + i]);
    board[thread] = top;
    __syncthreads();
    for (int step = 128; step; step /= 2) {
        if (thread < step) board[thread] = fmaxf(board[thread], board[thread + step]);
        __syncthreads();
    }
    top = board[0];
    __syncthreads();
    for (int i = thread; i < N; i += 256) sum += rounded(__expf(rounded(x[begin + i] - top)));
    board[thread] = sum;
    __syncthreads();
    for (int step = 128; step; step /= 2) {
        if (thread < step) board[thread] += board[thread + step];
        __syncthreads();
    }
    for (int i = thread; i < N; i += 256) out[begin + i] = rounded(__expf(rounded(x[begin + i] - top))) / board[0];
}
